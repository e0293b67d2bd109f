"""The end of a worker whose connection has ended and whose process goes on."""

import pickle
import subprocess
import sys
import time

import pyarrow as pa
from switchboards import DEADLINE_S

from impls.realtime.executor import RealTimeExecutor
from impls.spark.realtime.ends import end_processes
from impls.spark.realtime.settings import Wiring

_WORKER = """
import pickle, sys, time
from pyspark import TaskContext

context = TaskContext._getOrCreate()  # as Spark sets it in its worker processes
context._partitionId, context._stageId, context._localProperties = 0, 4, {}
wiring = pickle.loads(bytes.fromhex(sys.argv[1]))
open(sys.argv[2], "w").close()  # it is there however early the process is killed
with wiring.connect() as link:
    link.say(wiring.hello())
while True:
    with open(sys.argv[2], "a") as file:
        file.write("x")
    time.sleep(0.001)
"""


def test_a_worker_without_connection_writes_nothing_behind_the_end_of_its_query(board, tmp_path):
    wiring, written = Wiring(board.address, board.key, "run", 1, pa.schema([])), tmp_path / "written"
    executor = RealTimeExecutor(board)
    with subprocess.Popen([sys.executable, "-c", _WORKER, pickled(wiring), str(written)]) as process:
        try:
            await_lost(executor)
            assert [one.pid for one in executor.unclosed] == [process.pid]
            end_processes(executor.unclosed)
            size = written.stat().st_size
            assert process.wait(DEADLINE_S) < 0
            assert written.stat().st_size == size
        finally:
            process.kill()


def pickled(wiring: Wiring) -> str:
    return pickle.dumps(wiring).hex()


def await_lost(executor: RealTimeExecutor) -> None:
    """Returns when the worker has come and its connection has ended."""
    end = time.monotonic() + DEADLINE_S
    while not executor.unclosed or executor.pids:
        executor.take(0.01)
        assert time.monotonic() < end
