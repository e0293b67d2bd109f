"""The worker's store: dense counts, keyed entries, queues, sizes, one open environment per path."""

import sys

import lmdb
import numpy as np
import pyarrow as pa
import pytest
from queued import add_to_queues

from impls.errors import CorruptStateError, StateError
from impls.store.bins import copy_bin, read_size, write_size
from impls.store.checked import put_checked
from impls.store.entries import BLOCK_BYTES, SLOTS
from impls.store.environment import Meta, Store, read_meta, wipe, write_meta
from impls.store.queues import QueueIndex
from impls.store.records import stored_queues, take_queues
from impls.store.state import BinState
from impls.store.tables import DENSE, META, STATE, bin_key, bin_range, drop_range


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "w") as opened:
        yield opened


def test_dense_counts_add_up_across_blocks_and_transactions(store):
    bins, slots = np.array([3, 3, 5, 3], np.int32), np.array([0, SLOTS + 1, 7, 0])
    for round_ in (1, 2):
        with store.begin() as txn:
            state = BinState(txn, 16)
            if round_ == 1:
                state.create_dense(3, 2 * SLOTS)
                state.create_dense(5, SLOTS)
            first, counts = state.add_to_slots(bins, slots)
            state.write_sizes()
        found = dict(zip(zip(bins[first].tolist(), slots[first].tolist(), strict=True), counts.tolist(), strict=True))
        assert found == {(3, 0): 2 * round_, (3, SLOTS + 1): round_, (5, 7): round_}
    with store.reading() as txn:
        assert read_size(txn, 3) == (2, 2 * BLOCK_BYTES)


def test_a_slot_outside_the_bin_is_refused(store):
    with store.begin() as txn, pytest.raises(StateError, match="outside its dense bin"):
        BinState(txn, 16).add_to_slots(np.array([1], np.int32), np.array([0]))


def test_entries_are_found_again_in_the_order_asked_and_sizes_follow(store):
    with store.begin() as txn:
        state = BinState(txn, 16)
        long = b"x" * 600
        old = state.get_many([1, 0, 1], [b"b", b"a", long])
        assert old == [None, None, None]
        state.put_many([1, 0, 1], [b"b", b"a", long], [b"22", b"1", b"333"], old)
        assert state.get_many([1, 1, 0], [long, b"b", b"a"]) == [b"333", b"22", b"1"]
        assert dict(state.write_sizes()) == {0: 1 + 4, 1: 5 + 2 * 4 + 4 + len(long)}
        state.delete(1, b"b")
        state.delete(1, b"never there")
        assert state.write_sizes() == [(1, 3 + 4 + 4 + len(long))]


@pytest.mark.parametrize("damage", ["a value", "a checksum", "a key"])
def test_a_damaged_entry_is_never_read_nor_taken_for_absent(store, damage):
    keys = [bytes([i]) * 8 for i in range(9)]
    with store.begin() as txn:
        BinState(txn, 16).create_entries(3, [(key, b"value") for key in keys])
        name = bin_key(STATE, 3) + keys[4]
        raw = bytes(txn.get(name))
        if damage == "a key":
            txn.delete(name)
            name = bin_key(STATE, 3) + b"\x04\x04\x04\x04\x04\x04\x04\x05"
        else:
            raw = (b"vaLue" + raw[5:]) if damage == "a value" else raw[:-1] + bytes([raw[-1] ^ 1])
        txn.put(name, raw)
        with pytest.raises(CorruptStateError):
            BinState(txn, 16).get(3, keys[4])
        assert BinState(txn, 16).get_many([3, 3], [keys[2], b"\x08" * 7]) == [b"value", None]


def test_a_bin_with_a_damaged_key_is_not_copied(tmp_path):
    name, damaged = bin_key(STATE, 3) + b"\x04" * 8, bin_key(STATE, 3) + b"\x44" + b"\x04" * 7
    with Store.open(tmp_path / "source") as store, store.begin() as txn:
        BinState(txn, 16).create_entries(3, [(bytes([i]) * 8, b"value") for i in range(9)])
    file = tmp_path / "source" / "data.mdb"
    file.write_bytes(file.read_bytes().replace(name, damaged))
    with (
        Store.open(tmp_path / "source") as store, Store.open(tmp_path / "target") as other,
        store.reading() as txn, other.begin() as target, pytest.raises(CorruptStateError, match="out of order"),
    ):  # fmt: skip
        copy_bin(txn, target, 3)


@pytest.mark.parametrize("bit", [0, 63, 64 * 300 + 5, 64 * 509 + 17])
def test_a_block_with_a_flipped_bit_or_of_zero_bytes_is_never_read(store, bit):
    with store.begin() as txn:
        state = BinState(txn, 16)
        state.create_dense(3, SLOTS)
        state.add_to_slots(np.array([3, 3], np.int32), np.array([4, 300]))
        name = bin_key(DENSE, 3) + bytes(4)
        raw = bytearray(txn.get(name))
        raw[bit // 8] ^= 1 << bit % 8
        for bad in (bytes(raw), bytes(BLOCK_BYTES)):
            txn.put(name, bad)
            with pytest.raises(CorruptStateError, match="checksum"):
                state.add_to_slots(np.array([3], np.int32), np.array([9]))


def test_a_copied_bin_equals_its_source_and_nothing_else_comes(store, tmp_path):
    with store.begin() as txn:
        state = BinState(txn, 16)
        for bin_ in (6, 7, 8):
            state.create_entries(bin_, [(bytes([i]), bytes([bin_, i])) for i in range(5)])
        state.write_sizes()
    with Store.open(tmp_path / "other") as other, other.begin() as target:
        with store.reading() as source:
            assert copy_bin(source, target, 7) == 5 * (2 + 4)
            assert copy_bin(source, target, 7) == 5 * (2 + 4), "a repeated copy replaces the first"
        assert BinState(target, 16).get(7, b"\x03") == bytes([7, 3])
        assert BinState(target, 16).get(6, b"\x03") is None
        assert drop_range(target, *bin_range(STATE, 7)) == 5


def test_a_bin_with_fewer_entries_than_recorded_is_corrupt(store, tmp_path):
    with store.begin() as txn:
        state = BinState(txn, 16)
        state.create_entries(7, [(b"a", b"1"), (b"b", b"2")])
        state.write_sizes()
        txn.delete(bin_range(STATE, 7)[0] + b"a")
    corrupt = pytest.raises(StateError, match="Bin 7 holds 1 entries where 2 are recorded")
    with Store.open(tmp_path / "other") as other, other.begin() as target, store.reading() as source, corrupt:
        copy_bin(source, target, 7)


def test_a_bin_whose_state_has_left_a_shape_and_takes_it_again_counts_its_entries_once(store, tmp_path):
    with store.begin() as txn:
        for shape in (1, 0, 1, 2, 0):
            state = BinState(txn, 4)
            state.turn(3, shape, lambda _key, value: value)
            state.write_sizes()
            assert state.shape(3) == shape
            assert read_size(txn, 3) == (1, 8)
    with Store.open(tmp_path / "other") as other, store.reading() as view, other.begin() as txn:
        copy_bin(view, txn, 3)
        assert BinState(txn, 4).shape(3) == 0


def test_queues_keep_order_and_are_taken_once(store):
    table = pa.table({"bin": pa.array([2, 9, 2], pa.int32()), "offset": [0, 1, 2]})
    with store.begin() as txn:
        add_to_queues(txn, 5, table)
        add_to_queues(txn, 6, table)
        lengths = QueueIndex.of(stored_queues(txn)).lengths
        assert {b: n for b, (n, _) in lengths.items()} == {2: 4, 9: 2}
        assert all(size > 0 for _, size in lengths.values())
        taken = pa.concat_tables(take_queues(txn, [2]))
        assert taken.column("offset").to_pylist() == [0, 2, 0, 2]
        assert list(QueueIndex.of(stored_queues(txn)).lengths) == [9]


def test_a_full_map_is_an_error_and_a_larger_one_takes_what_it_did_not(tmp_path):
    with Store.open(tmp_path / "w", map_bytes=1 << 20) as store, pytest.raises(lmdb.MapFullError), store.begin() as txn:
        BinState(txn, 2).create_dense(0, SLOTS * 500)
    with Store.open(tmp_path / "w", map_bytes=4 << 20) as store, store.begin() as txn:
        BinState(txn, 2).create_dense(0, SLOTS * 500)


def test_one_environment_per_path_and_process(tmp_path):
    with Store.open(tmp_path / "w") as first, Store.open(tmp_path / "w") as second:
        assert first is second
    with Store.open(tmp_path / "w") as third:
        assert third is not first


def test_meta_is_read_back_and_another_format_is_refused(store):
    meta = Meta.new("q", 3, 7, 2)
    with store.begin() as txn:
        assert read_meta(txn) is None
        write_meta(txn, meta)
        assert read_meta(txn) == meta
        put_checked(txn, META, b'{"format": 99}')
        with pytest.raises(StateError, match="format 99"):
            read_meta(txn)
        txn.put(META, bytes(txn.get(META)).replace(b"99", b" 2"))
        with pytest.raises(CorruptStateError, match="checksum"):
            read_meta(txn)


def test_a_damaged_environment_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(CorruptStateError, match="is damaged"):
        Store.open(tmp_path / "w")
    wipe(tmp_path / "w")
    assert not (tmp_path / "w").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only here is the space of the lock file allocated")
@pytest.mark.parametrize("holes", [0, 4096 * 9])
def test_the_lock_file_has_all_its_space_so_that_a_full_disk_is_no_sigbus(tmp_path, holes):
    if holes:
        with (tmp_path / "lock.mdb").open("wb") as file:
            file.truncate(holes)
        assert (tmp_path / "lock.mdb").stat().st_blocks == 0
    with Store.open(tmp_path, map_bytes=1 << 20):
        found = (tmp_path / "lock.mdb").stat()
        assert found.st_blocks * 512 >= found.st_size > 512 * 64


def test_a_bin_that_loses_more_than_it_had_is_damaged(tmp_path):
    with Store.open(tmp_path / "one") as store, store.begin() as txn:
        state = BinState(txn, 4)
        state.create_entries(1, [(b"a", b"1")])
        state.write_sizes()
        write_size(txn, 1, 0, 0)
        state.delete(1, b"a")
        with pytest.raises(CorruptStateError, match="Bin 1 has lost more entries than it had"):
            state.write_sizes()
