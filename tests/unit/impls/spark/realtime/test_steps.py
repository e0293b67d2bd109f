"""The two steps of a real-time query without Spark: what they yield, say and raise."""

import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from impls.errors import StateError
from impls.protocol.session import Failed, Hello, Marks, Role, Route, Routed
from impls.realtime.blobs import Blob, decode, encode
from impls.realtime.flow import Flow, Pace
from impls.realtime.link import Lost, Switchboard
from impls.spark.realtime.settings import Wiring
from impls.spark.realtime.steps import own_step, route_step

DEADLINE_S = 30.0
SCHEMA = pa.schema([("bin", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64())])
TO_BOTH = np.array([0, 1], np.int32)
END = object()


@dataclass(frozen=True)
class Wired(Wiring):
    """Says hello as a task of Spark would."""

    def hello(self, role: Role) -> Hello:
        return Hello(role, 0, self.slots, self.run, 5, os.getpid())


class Input:
    """What Spark hands to a step: batches that come when the test puts them."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._queue.get(timeout=DEADLINE_S)) is not END:
            yield batch


class Running:
    """A step in a thread of its own."""

    def __init__(self, step: Iterator[pa.RecordBatch]):
        self.rows: queue.SimpleQueue[pa.RecordBatch] = queue.SimpleQueue()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(step,), daemon=True)
        self._thread.start()

    def _run(self, step: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in step:
                self.rows.put(batch)
        except Exception as error:
            self.error = error

    def ended(self) -> bool:
        self._thread.join(DEADLINE_S)
        return not self._thread.is_alive()


@pytest.fixture
def board():
    with Switchboard() as made:
        yield made


@pytest.fixture
def wiring(board):
    made = Wired(board.address, board.key, "run", 2, SCHEMA)
    Flow.create(made.flow, 2)
    return made


def records(*bins: int | None, first: int = 0) -> pa.RecordBatch:
    """A batch as Spark sends it, with the column that fills batches."""
    offsets = range(first, first + len(bins))
    columns = [pa.array(bins, pa.int32()), pa.array([0] * len(bins), pa.int32()), pa.array(offsets, pa.int64())]
    pad = pa.array([b"x" if bin_ is None else None for bin_ in bins], pa.binary())
    return pa.RecordBatch.from_arrays([*columns, pad], ["bin", "partition", "offset", "pad"])


def blob(number: int, *bins: int) -> pa.RecordBatch:
    raw = encode(0, number, 0, records(*bins).select(SCHEMA.names))
    return pa.RecordBatch.from_arrays([pa.array([0, 0], pa.int32()), pa.array([raw, b""], pa.binary())], ["slot", "b"])


def heard(board: Switchboard) -> Any:
    event = board.next(DEADLINE_S)
    assert event is not None, "nothing was heard"
    return event.message


def routed(batch: pa.RecordBatch) -> list[tuple[int, list[int]]]:
    """(slot, offsets) of the blobs that F yielded; each has an empty row behind it."""
    slots, blobs = batch.column(0).to_pylist(), batch.column(1).to_pylist()
    assert slots[::2] == slots[1::2]
    assert set(blobs[1::2]) == {b""}
    return [
        (slot, decode(raw, SCHEMA).table["offset"].to_pylist()) for slot, raw in zip(slots, blobs, strict=True) if raw
    ]


def test_f_routes_what_comes_and_switches_while_no_record_does(board, wiring):
    given = Input()
    running = Running(route_step(wiring, given))
    assert heard(board) == Hello("router", 0, 2, "run", 5, os.getpid())
    given.put(records(1, None, 0))  # it waits for the first routing
    board.send("router", 0, Route(0, TO_BOTH))
    assert heard(board) == Routed(0, (0, 0))
    assert routed(running.rows.get(timeout=DEADLINE_S)) == [(0, [2]), (1, [0])]
    board.send("router", 0, Route(1, np.zeros(2, np.int32)))
    assert heard(board) == Routed(1, (1, 1), ((0, 3),))
    given.put(records(None, None))
    given.put(records(1, first=7))
    assert routed(running.rows.get(timeout=DEADLINE_S)) == [(0, [7])]
    given.put(END)
    assert running.ended()
    assert running.error is None
    assert heard(board) == Lost()


def test_f_ends_with_an_error_when_the_routing_does_not_fit(board, wiring):
    running = Running(route_step(wiring, Input()))
    heard(board)
    board.send("router", 0, Route(0, np.full(2, 2, np.int32)))
    assert running.ended()
    assert isinstance(running.error, StateError)
    assert heard(board) == Failed("router", 0, "StateError", str(running.error))


def test_f_ends_with_an_error_when_the_driver_is_gone(board, wiring):
    running = Running(route_step(wiring, Input()))
    heard(board)
    board.send("router", 0, Route(0, TO_BOTH))
    heard(board)
    board.close()
    assert running.ended()
    assert running.error is not None


def test_f_holds_records_back_that_no_worker_has_room_for_and_routes_them_when_it_has(board, wiring):
    given, flow = Input(), Flow(wiring.flow, 2)
    running = Running(route_step(wiring, given))
    heard(board)
    board.send("router", 0, Route(0, np.array([0, 0], np.int32)))
    heard(board)
    given.put(records(*[0] * 300))
    [(slot, offsets)] = routed(running.rows.get(timeout=DEADLINE_S))
    assert (slot, offsets) == (0, list(range(256)))
    assert flow.room().tolist() == [0, 256]
    board.send("router", 0, Route(1, np.array([1, 0], np.int32)))
    assert heard(board).sent == (1, 0)
    assert routed(running.rows.get(timeout=DEADLINE_S)) == [(1, list(range(256, 300)))]
    flow.applied(0, 256, 64)
    assert flow.room().tolist() == [64, 212]
    given.put(END)
    assert running.ended()
    assert running.error is None


def test_f_that_holds_records_back_ends_with_the_driver(board, wiring):
    given = Input()
    running = Running(route_step(wiring, given))
    heard(board)
    board.send("router", 0, Route(0, np.array([0, 0], np.int32)))
    heard(board)
    given.put(records(*[0] * 300))
    running.rows.get(timeout=DEADLINE_S)
    board.close()
    assert running.ended()
    assert running.error is not None


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

    running = Running(own_step(make, wiring, given))
    assert heard(board) == replace(wiring.hello("worker"))
    return running


def test_s_hands_blobs_on_in_order_and_ends_when_all_are_applied(board, wiring, worker_log):
    given = Input()
    running = started(board, wiring, given, worker_log)
    board.send("worker", 0, "go")
    given.put(blob(1, 0, 1))
    assert heard(board) == Marks(1, ())
    given.put(blob(2, 1))
    given.put(blob(3, 1))
    given.put(END)
    assert running.ended()
    assert running.error is None
    assert worker_log == [("made", 0, 5), 1, 2, 3, "closed"]


def test_s_waits_at_the_end_of_the_input_until_the_driver_says_what_to_do_with_the_last_blobs(
    board, wiring, worker_log
):
    given = Input()
    running = started(board, wiring, given, worker_log)
    given.put(blob(1, 0))
    given.put(END)
    board.send("worker", 0, "go")
    assert heard(board) == Marks(1, ())
    assert running.ended()
    assert worker_log == [("made", 0, 5), 1, "closed"]


def test_s_says_why_it_ends_and_closes_what_is_open(board, wiring, worker_log):
    running = started(board, wiring, Input(), worker_log)
    board.send("worker", 0, "fail")
    assert heard(board) == Failed("worker", 0, "StateError", "as told")
    assert running.ended()
    assert str(running.error) == "as told"
    assert worker_log[-1] == "closed"


def test_s_refuses_what_is_no_blob(board, wiring, worker_log):
    given = Input()
    running = started(board, wiring, given, worker_log)
    given.put(pa.RecordBatch.from_arrays([pa.array([0], pa.int32()), pa.array([b"no"], pa.binary())], ["slot", "b"]))
    assert running.ended()
    assert isinstance(running.error, ValueError)
    assert heard(board).kind == "ValueError"
