"""The step S of a real-time query without Spark: what it says and raises."""

import os
import queue
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Client
from typing import Any

import pyarrow as pa
import pytest
from router import encode
from switchboards import DEADLINE_S, Running, heard

from impls.errors import StateError
from impls.operators import HashCount
from impls.protocol.session import Closed, Failed, Hello, Marks
from impls.realtime.blobs import Blob
from impls.realtime.flow import Flow, Pace
from impls.realtime.link import Switchboard
from impls.spark.realtime.settings import Wiring
from impls.spark.realtime.steps import own_step, worker_maker
from impls.worker.query import QuerySpec

SCHEMA = pa.schema([("bin", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64())])
END = object()


@dataclass(frozen=True)
class Wired(Wiring):
    """Says hello as a task of Spark would."""

    def hello(self) -> Hello:
        return Hello("worker", 0, self.slots, self.run, 5, os.getpid())


class Input:
    """What Spark hands to a step: batches that come when the test puts them."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        self.put = self._queue.put

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._queue.get(timeout=DEADLINE_S)) is not END:
            yield batch


@pytest.fixture
def wiring(board):
    made = Wired(board.address, board.key, "run", 2, SCHEMA)
    Flow.create(made.flow, 2)
    return made


@pytest.fixture
def send(wiring):
    """Sends the worker a blob as its only router would."""
    routers: list[Any] = []

    def sent(raw: bytes) -> None:
        if not routers:
            routers.append(Client(wiring.worker_address(5, 0), "AF_UNIX", authkey=wiring.key))
        routers[0].send_bytes(raw)

    yield sent
    for router in routers:
        router.close()


def count(blobs: int) -> pa.RecordBatch:
    """A row as Spark brings it at the end: what the router has sent."""
    columns = [pa.array([number], pa.int32()) for number in (0, 0, blobs)]
    return pa.RecordBatch.from_arrays(columns, ["slot", "router", "blobs"])


def blob(number: int, *bins: int) -> bytes:
    columns = [
        pa.array(bins, pa.int32()),
        pa.array([0] * len(bins), pa.int32()),
        pa.array(range(len(bins)), pa.int64()),
    ]
    return encode(0, number, 0, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


class Worker:
    """Writes down what it is given; blobs wait for the word "go"."""

    def __init__(self, number: int, batch: int, say: Any, log: list[Any]):
        self._log, self._say, self._going, self.pace = log, say, False, Pace()
        self._blobs: list[Blob] = []
        log.append(("made", number, batch))

    @property
    def spare(self) -> bool:
        return not self._going or not self._blobs

    @property
    def waiting(self) -> int:
        return len(self._blobs)

    def hear(self, message: Any) -> None:
        if message == "fail":
            raise StateError("as told")
        self._going = True

    def take(self, blobs: Any) -> None:
        self._blobs += blobs

    def step(self) -> bool:
        if self._going and self._blobs:
            first, *self._blobs = self._blobs
            self._log.append(first.number)
            self.pace.took(len(first.table), 1.0)
            self._say(Marks(first.number, ()))
        return self._going and bool(self._blobs)

    def close(self) -> None:
        self._log.append("closed")


@pytest.fixture
def worker_log():
    return []


def started(board: Switchboard, wiring: Wiring, given: Input, log: list[Any]) -> Running:
    def make(number: int, batch: int, say: Any) -> Worker:
        return Worker(number, batch, say, log)

    running = Running(lambda: list(own_step(make, wiring, given)))
    assert heard(board).message == wiring.hello()
    return running


def test_s_hands_blobs_on_in_order_and_ends_when_all_are_applied(board, wiring, send, worker_log):
    given = Input()
    running = started(board, wiring, given, worker_log)
    board.send("worker", 0, "go")
    send(blob(1, 0, 1))
    assert heard(board).message == Marks(1, ())
    given.put(count(3))
    given.put(END)
    send(blob(2, 1))
    assert heard(board).message == Marks(2, ())
    send(blob(3, 1))
    assert heard(board).message == Marks(3, ())
    assert heard(board).message == Closed(0)
    assert running.ended()
    assert running.error is None
    assert worker_log == [("made", 0, 5), 1, 2, 3, "closed"]


def test_s_waits_at_the_end_of_the_input_until_the_driver_says_what_to_do_with_the_last_blobs(
    board, wiring, send, worker_log
):
    given = Input()
    running = started(board, wiring, given, worker_log)
    send(blob(1, 0))
    given.put(count(1))
    given.put(END)
    board.send("worker", 0, "go")
    assert heard(board).message == Marks(1, ())
    assert running.ended()
    assert worker_log == [("made", 0, 5), 1, "closed"]


def test_s_says_why_it_ends_and_closes_what_is_open(board, wiring, worker_log):
    running = started(board, wiring, Input(), worker_log)
    board.send("worker", 0, "fail")
    assert heard(board).message == Failed("worker", 0, "StateError", "as told")
    assert heard(board).message == Closed(0)
    assert running.ended()
    assert str(running.error) == "as told"
    assert worker_log[-1] == "closed"


def test_s_refuses_what_is_no_blob(board, wiring, send, worker_log):
    running = started(board, wiring, Input(), worker_log)
    send(b"no")
    assert running.ended()
    assert isinstance(running.error, ValueError)
    assert heard(board).message.kind == "ValueError"


@dataclass
class Connected:
    """A sink that notes when it is asked to connect."""

    connected: list[bool] = field(default_factory=list)

    def connect(self) -> None:
        self.connected.append(True)


def test_a_worker_is_connected_to_where_its_results_go_before_there_are_any(tmp_path):
    sink = Connected()
    worker = worker_maker(QuerySpec("q", 1, HashCount(), sink, str(tmp_path)))(0, 0, lambda _: None)  # type: ignore[arg-type]
    worker.close()
    assert sink.connected
