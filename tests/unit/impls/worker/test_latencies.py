"""Latencies of an epoch: each commit stores its own, a task that comes later has all, and the next epoch none."""

import time

import numpy as np
import pyarrow as pa
import pytest

from impls.store.environment import Store
from impls.worker.latencies import Latencies

RECORDS = 50


class Counting:
    """A transaction that counts the bytes put into it."""

    def __init__(self, txn):
        self._txn, self.bytes = txn, 0

    def cursor(self):
        return self._txn.cursor()

    def put(self, key, value):
        self.bytes += len(value)
        return self._txn.put(key, value)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path) as opened:
        yield opened


def commit(latencies, store, records, *, sent=True):
    """Commits with records, whose results then arrive or not; returns the bytes that it wrote."""
    columns = {"bin": np.zeros(records, np.int32), "time": np.full(records, time.time_ns() // 1000)}
    latencies.add(pa.table(columns) if records else None, ())
    with store.begin() as txn:
        counting = Counting(txn)
        latencies.write(counting)
    if sent:
        latencies.arrived(time.time_ns() // 1000)
    return counting.bytes


def records_of(latencies):
    cells, negative = latencies.cells()
    return int(cells["count"].sum()) + negative


def read(store):
    with store.reading() as txn:
        return Latencies.read(txn)


def test_a_commit_writes_its_own_latencies_and_the_arrival_of_the_one_before(store):
    latencies = Latencies.none()
    first, *written = [commit(latencies, store, RECORDS) for _ in range(200)]
    assert set(written) == {2 * first}
    assert records_of(latencies) == records_of(read(store)) == 200 * RECORDS


@pytest.mark.parametrize("killed_after", range(4))
def test_a_task_that_comes_later_goes_on_with_all_of_them_and_keeps_the_arrivals(store, killed_after):
    latencies, numbers = Latencies.none(), [3, 0, 5, 2]
    for place, records in enumerate(numbers[: killed_after + 1]):
        commit(latencies, store, records, sent=place < killed_after)
    later = read(store)
    arrivals = [part["done"].tolist() for part in latencies.commits[:-1]]
    assert [part["done"].tolist() for part in later.commits[: len(arrivals)]] == arrivals
    for records in numbers[killed_after + 1 :]:
        commit(later, store, records)
    assert records_of(later) == records_of(read(store)) == sum(numbers)


def test_a_commit_that_came_to_nothing_is_written_again_in_its_place(store):
    latencies = Latencies.none()
    commit(latencies, store, 3)
    commit(latencies, store, 4, sent=False)  # its commit has failed, or was of no records
    commit(latencies, store, 5)
    assert records_of(read(store)) == records_of(latencies) == 8


def test_the_first_commit_of_the_next_epoch_deletes_them(store):
    latencies = Latencies.none()
    for _ in range(5):
        commit(latencies, store, RECORDS)
    assert records_of(read(store)) == 5 * RECORDS
    commit(Latencies.none(), store, 3)
    assert records_of(read(store)) == 3
