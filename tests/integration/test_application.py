"""A Spark application that is stopped and started inside one process, as restart-application does."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = """
from harness.lab.bringup import stop_session
from harness.setup.java import use_java
from impls.spark.cluster import end_session
from impls.spark.session import spark_session

use_java()
first = spark_session((), threads=1)
gone = first.sparkContext._gateway.proc
end_session(first)
second = spark_session((), threads=1)
assert second.range(3).count() == 3
stop_session(second)
stop_session(second)
stop_session(first)
print("ended", gone.poll())
"""


def test_a_session_whose_jvm_is_gone_can_be_stopped_once_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("ended ")
    assert done.stdout.split()[-1] != "None"  # the first JVM had ended when the second was there
