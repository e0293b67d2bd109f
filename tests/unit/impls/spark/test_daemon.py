"""The daemon can be forked after its imports, and gives way to Spark's own where it cannot."""

import os
import subprocess
import sys

import pytest

from harness.files import ROOT

linux = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")


def run(code, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@linux
def test_after_its_imports_there_is_one_thread_and_a_fork_has_them_all():
    code = """
import os, sys
from impls.spark.daemon import preload
assert preload()
if os.fork() == 0:
    import pyarrow as pa, pyarrow.compute
    assert "impls.spark.step" in sys.modules
    assert pa.compute.sum(pa.array(range(100_000))).as_py() == 4_999_950_000
    print("forked", flush=True)
    os._exit(0)
assert os.wait()[1] == 0
"""
    assert run(code) == "forked"


@pytest.mark.lengthy
@linux
def test_a_library_that_starts_a_thread_is_noticed():
    assert run("from impls.spark.daemon import preload; print(preload())") == "True"
    running = {"JE_ARROW_MALLOC_CONF": "background_thread:true"}
    assert run("from impls.spark.daemon import preload; print(preload())", **running) == "False"
