"""Latencies of a tick: each turn stores its own, a task that comes later has all of them, and the tick's end none."""

import time

import numpy as np
import pyarrow as pa
import pytest

from impls.realtime.merging import Latencies, end_latencies
from impls.store.environment import Store
from impls.worker.cells import CELL

RECORDS = 50


class Counting:
    """A transaction that counts the bytes put into it."""

    def __init__(self, txn):
        self._txn, self.bytes = txn, 0

    def put(self, key, value):
        self.bytes += len(value)
        return self._txn.put(key, value)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path) as opened:
        yield opened


def turn(latencies, store, records, *, sent=True):
    """Commits a turn with records, whose results then arrive or not; returns the bytes that it wrote."""
    columns = {"bin": np.zeros(records, np.int32), "time": np.full(records, time.time_ns() // 1000)}
    latencies.turn(pa.table(columns) if records else None, ())
    with store.begin() as txn:
        counting = Counting(txn)
        latencies.write(counting)
    if sent:
        latencies.arrived()
    return counting.bytes


def records_of(latencies):
    cells, negative = latencies.cells()
    return int(np.frombuffer(cells, CELL)["count"].sum()) + negative


def read(store):
    with store.reading() as txn:
        return Latencies.read(txn)


def test_a_turn_writes_its_own_latencies_and_the_arrival_of_the_turn_before(store):
    latencies = Latencies.none()
    first, *written = [turn(latencies, store, RECORDS) for _ in range(200)]
    assert set(written) == {2 * first}
    assert records_of(latencies) == records_of(read(store)) == 200 * RECORDS


@pytest.mark.parametrize("killed_after", range(4))
def test_a_task_that_comes_later_goes_on_with_all_of_them_and_keeps_the_arrivals(store, killed_after):
    latencies, numbers = Latencies.none(), [3, 0, 5, 2]
    for place, records in enumerate(numbers[: killed_after + 1]):
        turn(latencies, store, records, sent=place < killed_after)
    later = read(store)
    arrivals = [part["done"].tolist() for part in latencies.turns[:-1]]
    assert [part["done"].tolist() for part in later.turns[: len(arrivals)]] == arrivals
    for records in numbers[killed_after + 1 :]:
        turn(later, store, records)
    assert records_of(later) == records_of(read(store)) == sum(numbers)


def test_a_turn_that_came_to_nothing_is_written_again_in_its_place(store):
    latencies = Latencies.none()
    turn(latencies, store, 3)
    turn(latencies, store, 4, sent=False)  # its commit has failed, or was of no records
    turn(latencies, store, 5)
    assert records_of(read(store)) == records_of(latencies) == 8


def test_the_end_of_a_tick_deletes_them(store):
    latencies = Latencies.none()
    for _ in range(5):
        turn(latencies, store, RECORDS)
    with store.begin() as txn:
        end_latencies(txn, 7, latencies.cells()[0])
    assert records_of(read(store)) == 0
    with store.reading() as txn:
        assert txn.stat()["entries"] == 1
