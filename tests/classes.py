"""An archive of the classes that Spark's JVM loads at each start, which saves half of the processor time of a start.

A driver takes it by an environment variable of Spark's launcher, and reads the jars instead where it does not fit them.
It is made once for a Java and a pyspark, and kept in the cache folder. Users' runs know nothing of it: in them the
start of a JVM is a part of what a restart costs.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark

from harness.setup.jars import cache_folder, ensure_jars
from harness.setup.java import find_java, use_java
from impls.errors import UsageError

__all__ = ["end", "use_archive"]

_VARIABLE = "SPARK_SUBMIT_OPTS"
_QUIET = "-Xlog:disable"  # where the archive does not fit, and what cannot go into it
_DEADLINE_S = 150.0
_ROOT = Path(__file__).parents[1]
_USE_SPARK = """
from pyspark import SparkContext
from harness.lab.bringup import open_session

spark = open_session("classes", 2)
rows = spark.range(0, 100, 1, 2)
rows.mapInArrow(lambda batches: batches, rows.schema).repartition(2).collect()
stream = spark.readStream.format("rate").load().writeStream.trigger(processingTime="0 seconds")
with_python = stream.foreachBatch(lambda batch, _: batch.mapInArrow(lambda b: b, batch.schema).collect()).start()
while not with_python.lastProgress or with_python.lastProgress["batchId"] < 2:
    with_python.awaitTermination(0.1)
with_python.stop()
spark.stop()
jvm = SparkContext._gateway.proc
jvm.stdin.close()
jvm.wait(100)
"""


def use_archive() -> "subprocess.Popen[bytes] | None":
    """Lets every Spark driver that this process starts, or its children, take the archive.

    Returns the process that makes it, where it is missing; sessions that start before its end read the jars instead.
    """
    if _VARIABLE in os.environ:
        return None
    try:
        ensure_jars()
        archive = _place()
    except (UsageError, subprocess.SubprocessError, OSError) as error:
        _say(error)
        return None
    maker = None
    if not archive.exists():
        environ = os.environ | {"PYTHONPATH": str(_ROOT)}
        maker = subprocess.Popen([sys.executable, __file__, archive], env=environ, start_new_session=True)
    os.environ[_VARIABLE] = f"-XX:SharedArchiveFile={archive} {_QUIET}"
    return maker


def end(maker: "subprocess.Popen[bytes]") -> None:
    """Ends the making, and what it has started, where it goes on still."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(maker.pid, signal.SIGTERM)
    maker.wait(_DEADLINE_S)


def _say(error: Exception) -> None:
    sys.stderr.write(f"Spark's classes are not archived, its sessions start slower: {error}\n")


def _place() -> Path:
    jars = Path(pyspark.__file__).parent / "jars"
    java = subprocess.run([find_java(), "-version"], capture_output=True, text=True, timeout=_DEADLINE_S, check=True)
    known = f"{java.stderr} {jars} {sorted((jar.name, jar.stat().st_mtime_ns) for jar in jars.iterdir())} {_USE_SPARK}"
    return cache_folder() / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def _make(archive: Path) -> None:
    use_java()
    partial = archive.with_suffix(f".{os.getpid()}")
    environ = os.environ | {_VARIABLE: f"-XX:ArchiveClassesAtExit={partial} {_QUIET}"}
    command = [sys.executable, "-c", _USE_SPARK]
    try:
        subprocess.run(command, cwd=_ROOT, env=environ, capture_output=True, timeout=_DEADLINE_S, check=True)
        for other in set(archive.parent.glob("classes-*")) - {partial}:  # of another Java, or left by one cut off
            other.unlink(missing_ok=True)
        partial.rename(archive)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        _make(Path(sys.argv[1]))
    except (UsageError, subprocess.SubprocessError, OSError) as failed:
        _say(failed)
