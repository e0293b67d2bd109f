"""How far the clocks of a cluster's hosts differ from this machine's, asked as NTP asks: there and back, many times."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from impls.spark.anchor import host_name

ClockOffset = tuple[float, float]  # milliseconds by which a clock is ahead of this machine's, and how exact that is

_ROUNDS = 20
_DEADLINE_S = 5.0
_BYTES = 8
_LOOK_S = 0.2
_ANSWER = "host string, ahead double, within double"


def clock_offsets(spark: SparkSession, address: str) -> dict[str, ClockOffset]:
    """Returns the offset of each host's clock by the host's name; nothing where not all slots are free at once.

    Args:
        spark: a session on a cluster.
        address: of this machine as the hosts reach it.
    """
    tasks = spark.sparkContext.defaultParallelism
    with serve_clock(address) as at:

        def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            ahead, within = ask_clock(at)
            yield pa.RecordBatch.from_pydict({"host": [host_name()], "ahead": [ahead], "within": [within]})

        try:
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(ask, _ANSWER, barrier=True).collect()
        except PySparkException:
            return {}
    found: dict[str, ClockOffset] = {}
    for row in rows:
        one = (float(row["ahead"]), float(row["within"]))
        found[row["host"]] = min(found.get(row["host"], one), one, key=lambda offset: offset[1])
    return found


@contextmanager
def serve_clock(address: str) -> Iterator[tuple[str, int]]:
    """Answers every eight bytes that come to a port of an address with this machine's time; yields address and port."""
    ended = threading.Event()
    with socket.create_server((address, 0)) as server:
        server.settimeout(_LOOK_S)

        def serve() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    connection, _ = server.accept()
                    threading.Thread(target=_answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, name="clock", daemon=True)
        thread.start()
        try:
            yield (address, int(server.getsockname()[1]))
        finally:
            ended.set()
            thread.join(_DEADLINE_S)


def _answer(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.settimeout(_DEADLINE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while connection.recv(_BYTES, socket.MSG_WAITALL):
            connection.sendall(time.time_ns().to_bytes(_BYTES, "big"))


def ask_clock(at: tuple[str, int]) -> ClockOffset:
    """Returns the offset of this process's clock from the one that is served, from the quickest of twenty answers.

    The answer was given at some time between question and answer, so the offset is exact to half of that.
    """
    best = (0.0, float("inf"))
    with socket.create_connection(at, _DEADLINE_S) as own:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUNDS):
            asked = time.time_ns()
            own.sendall(bytes(_BYTES))
            told = own.recv(_BYTES, socket.MSG_WAITALL)
            answered = time.time_ns()
            if len(told) < _BYTES:
                raise ConnectionError("the clock's server has ended")
            ahead = (asked + answered) / 2 - int.from_bytes(told, "big")
            best = min(best, (ahead / 1e6, (answered - asked) / 2e6), key=lambda offset: offset[1])
    return best
