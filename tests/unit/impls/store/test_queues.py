"""What is known in memory of an environment's queues: it is what is stored, and what is not is damage."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queued import add_to_queues

from impls.errors import CorruptStateError
from impls.store.environment import Store
from impls.store.queues import QueueIndex
from impls.store.records import put_queued, stored_queues
from impls.store.tables import QUEUE, bin_key

NOT_AS_LEFT = "queues are not as the last commit left them"


def records(bins, first=0):
    return pa.table({"bin": pa.array(bins, pa.int32()), "offset": pa.array(range(first, first + len(bins)))})


@pytest.fixture
def filled(tmp_path):
    """Yields a transaction with parts 5 and 6 of the queues of bins 2 and 9, and the index of it."""
    with Store.open(tmp_path / "store") as store, store.begin() as txn:
        index = QueueIndex({}, {})
        for number in (5, 6):
            index = index.after(add_to_queues(txn, number, records([2, 9, 2], number * 10)))
        yield txn, index


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 5)))))
def test_operations_on_queues_lead_to_what_reading_gives(tmp_path_factory, commits):
    with Store.open(tmp_path_factory.mktemp("drawn") / "store") as store, store.begin() as txn:
        index = QueueIndex({}, {})
        for number, (arrived, ready) in enumerate(commits):
            before = index.lengths
            taken = index.take(txn, ready)
            assert sum(len(table) for _, table in taken) == sum(before[bin_][0] for bin_ in ready & before.keys())
            operations = [(bin_, None) for bin_ in ready] + add_to_queues(txn, number, records(arrived))
            index = index.after(operations)
            index.check(txn)
            read = QueueIndex.of(stored_queues(txn))
            assert list(read.lengths.items()) == list(index.lengths.items())
            read.check(txn)


def test_a_queue_is_taken_in_order_and_no_other_is(filled):
    txn, index = filled
    assert pa.concat_tables([table for _, table in index.take(txn, [2])]).column("offset").to_pylist() == [
        50,
        52,
        60,
        62,
    ]
    assert list(QueueIndex.of(stored_queues(txn)).lengths) == list(index.after([(2, None)]).lengths) == [9]


@pytest.mark.parametrize("number", [5, 6])
@pytest.mark.parametrize("bin_", [2, 9])
def test_a_part_that_is_missing_is_found_by_its_commit_and_by_whoever_takes_the_queue(filled, bin_, number):
    txn, index = filled
    txn.delete(bin_key(QUEUE, bin_) + number.to_bytes(6, "big"))
    with pytest.raises(CorruptStateError, match=NOT_AS_LEFT):
        index.check(txn)
    with pytest.raises(CorruptStateError, match=f"queue of bin {bin_} is not as it was stored"):
        index.take(txn, [2, 9])


@pytest.mark.parametrize("bin_", [1, 2, 5, 9, 11])
def test_a_part_that_was_taken_long_ago_does_not_come_back(filled, bin_):
    txn, index = filled
    put_queued(txn, bin_, (4).to_bytes(6, "big") + bytes(8))
    with pytest.raises(CorruptStateError, match=NOT_AS_LEFT):
        index.check(txn)


def test_nothing_waits_where_nothing_is_known_of(filled):
    txn, _ = filled
    with pytest.raises(CorruptStateError, match=NOT_AS_LEFT):
        QueueIndex({}, {}).check(txn)
    with pytest.raises(CorruptStateError, match="queue of bin 9 is not as it was stored"):
        QueueIndex({}, {}).take(txn, [9])


def test_damaged_records_are_not_taken(filled):
    txn, index = filled
    name = bin_key(QUEUE, 2) + (6).to_bytes(6, "big")
    stored = bytearray(txn.get(name))
    stored[-1] ^= 1
    txn.put(name, bytes(stored))
    index.check(txn)
    with pytest.raises(CorruptStateError, match="its checksum does not match"):
        index.take(txn, [2])
