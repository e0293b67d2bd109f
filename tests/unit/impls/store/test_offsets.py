"""What bins have applied: a record counts once, whatever comes again in whatever pieces, and moves with its bin."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import CorruptStateError
from impls.store.bins import copy_bin, drop_bin, read_size
from impls.store.environment import Store
from impls.store.offsets import Offsets
from impls.store.records import ROW
from impls.store.state import BinState
from impls.store.tables import OFFSETS, bin_key

BINS = 4


KINDS = {"bin": pa.int32(), "partition": pa.int64(), "offset": pa.int64(), ROW: pa.int64()}
PARTITIONS = (0, 2, 1 << 20, 7 << 20 | 2, 1 << 62, -3)  # of one topic, of others, hashed; numbers of the user's own


def table(rows):
    """Rows of (bin, input partition, offset), and with a fourth number those of records that can have several."""
    several = len(rows[0]) == len(KINDS) if rows else False
    names = list(KINDS)[: len(KINDS) if several else 3]
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table({name: pa.array(column, KINDS[name]) for name, column in zip(names, columns, strict=True)})


def rows(of):
    return list(zip(*(of.column(name).to_pylist() for name in KINDS if name in of.column_names), strict=True))


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "one") as opened:
        yield opened


def apply(offsets, txn, given_rows):
    """Applies what is new of records and returns it."""
    new = offsets.new(table(given_rows))
    state = BinState(txn, BINS)
    advance = offsets.advance(new, state)
    state.write_sizes()
    advance.hold()
    return rows(new)


in_bins = st.lists(st.integers(0, BINS - 1), min_size=1, max_size=4)
records = st.lists(st.tuples(st.sampled_from(PARTITIONS), in_bins), min_size=1, max_size=20)


@given(records, st.booleans(), st.lists(st.integers(0, 40), min_size=2, max_size=8))
def test_each_row_is_new_once_whatever_is_repeated_and_wherever_a_record_is_cut(
    tmp_path_factory, places, several, cuts
):
    following = Counter()
    stream = []
    for partition, bins in places:  # offsets are those of each partition: equal ones are in several
        offset, following[partition] = following[partition], following[partition] + 1
        own = enumerate(bins) if several else [(0, bins[0])]
        stream += [(bin_, partition, offset, *([row] if several else [])) for row, bin_ in own]
    with Store.open(tmp_path_factory.mktemp("store")) as opened, opened.begin() as txn:
        offsets, seen = Offsets(BINS), []
        for cut in [*cuts, len(stream)]:
            again = Offsets(BINS)
            again.load(txn)
            offsets = again if cut % 2 else offsets  # as a task that was started again knows it
            seen += apply(offsets, txn, stream[:cut])
        assert sorted(seen) == sorted(stream)


def test_offsets_hold_when_their_transaction_is_committed(store):
    offsets = Offsets(BINS)
    with store.begin() as txn:
        offsets.advance(table([(1, 0, 4)]), BinState(txn, BINS))
        txn.abort()
    assert rows(offsets.new(table([(1, 0, 4)]))) == [(1, 0, 4)]


def test_offsets_move_with_their_bin_and_are_dropped_with_it(store, tmp_path):
    mine = Offsets(BINS)
    with store.begin() as txn:
        apply(mine, txn, [(1, 0, 4), (1, 2, 9), (2, 0, 5)])
    theirs = Offsets(BINS)
    with Store.open(tmp_path / "two") as other, other.begin() as txn, store.reading(buffers=False) as view:
        copy_bin(view, txn, 1)
        theirs.load(txn, [1])
        assert rows(theirs.new(table([(1, 0, 4), (1, 0, 5), (1, 2, 9), (1, 1, 0)]))) == [(1, 0, 5), (1, 1, 0)]
        assert read_size(txn, 1)[0] == 2
        drop_bin(txn, 1, whole=True)
        theirs.load(txn, [1])
        theirs.forget([1])
        assert rows(theirs.new(table([(1, 0, 4)]))) == [(1, 0, 4)]


def test_records_that_queues_hold_are_left_out_when_they_come_again():
    offsets = Offsets(BINS)
    assert rows(offsets.unqueued(table([(1, 0, 3)]))) == [(1, 0, 3)]
    offsets.keep(table([(1, 0, 3), (1, 0, 5)]))
    offsets.keep(table([]))
    assert rows(offsets.unqueued(table([(1, 0, 2), (1, 0, 5), (1, 0, 6), (1, 1, 0), (2, 0, 1)]))) == [
        (1, 0, 6), (1, 1, 0), (2, 0, 1),
    ]  # fmt: skip


def test_a_damaged_offset_is_refused(store):
    with store.begin() as txn:
        apply(Offsets(BINS), txn, [(1, 0, 4)])
        name = bin_key(OFFSETS, 1) + (0).to_bytes(8, "big")
        value = bytearray(txn.get(name))
        value[0] ^= 1
        txn.put(name, bytes(value))
        with pytest.raises(CorruptStateError):
            Offsets(BINS).load(txn)


def test_a_record_that_was_applied_whole_stays_applied_when_records_get_several_rows(store):
    offsets = Offsets(BINS)
    with store.begin() as txn:
        apply(offsets, txn, [(1, 0, 4)])
        assert apply(offsets, txn, [(1, 0, 4, 0), (1, 0, 4, 1), (1, 0, 5, 0)]) == [(1, 0, 5, 0)]
        assert apply(offsets, txn, [(1, 0, 5), (1, 0, 6)]) == [(1, 0, 6)]
