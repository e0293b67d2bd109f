"""Packs: entries move in them, are found in them, and no damaged one is taken for whole."""

import numpy as np
import pytest

from impls.durability.snapshot import image_of, install
from impls.errors import CorruptStateError
from impls.store import packs
from impls.store.bins import copy_bin, drop_bin, read_size, stored_items
from impls.store.entries import stored_name, stored_value
from impls.store.environment import Meta, Store, write_meta
from impls.store.pages import leaves_of
from impls.store.state import BinState
from impls.store.tables import PACKS, STATE, bin_key, bin_range, iter_range

ENTRIES = 1000
KEYS = [n.to_bytes(4, "big") for n in range(0, 2 * ENTRIES, 2)]
VALUE = b"value"


def items_of(txn, table, bin_=3):
    return [(bytes(name), bytes(value)) for name, value in iter_range(txn, *bin_range(table, bin_))]


def fill(store, entries, bin_=3):
    with store.begin() as txn:
        write_meta(txn, Meta.new("q", 0, 0, 0))
        state = BinState(txn, 16)
        for other in (bin_ - 1, bin_ + 1):
            state.create_entries(other, [(b"another length", b"")])
        state.create_entries(bin_, entries)
        state.write_sizes()


def move(source, target, bin_=3):
    with source.reading(buffers=False) as view, leaves_of(source.path, view) as leaves, target.begin() as txn:
        assert leaves is not None
        return copy_bin(view, txn, bin_, leaves)


@pytest.fixture
def source(tmp_path):
    with Store.open(tmp_path / "source") as store:
        fill(store, [(key, VALUE) for key in KEYS])
        yield store


@pytest.fixture
def packed(source, tmp_path):
    """An environment with bin 3, all in packs."""
    with Store.open(tmp_path / "packed") as store:
        assert move(source, store) == ENTRIES * 9
        with store.begin() as txn:
            write_meta(txn, Meta.new("q", 1, 0, 0))
        yield store


def test_a_moved_bin_is_its_source_in_packs(source, packed):
    with source.reading(buffers=False) as before, packed.reading(buffers=False) as after:
        assert items_of(after, STATE) == []
        assert len(items_of(after, PACKS)) == -(-ENTRIES // ((packs._BYTES - 4) // 13))
        assert stored_items(after, 3) == stored_items(before, 3) == items_of(before, STATE)
        assert read_size(after, 3) == read_size(before, 3) == (ENTRIES, ENTRIES * 9)


def test_packs_move_on_and_back_as_they_are(packed, source, tmp_path):
    with Store.open(tmp_path / "third") as third:
        move(packed, third)
        with packed.reading() as before, third.reading() as after:
            assert items_of(after, PACKS) == items_of(before, PACKS)
    move(packed, source)
    with source.begin() as txn:
        assert BinState(txn, 16).get(3, KEYS[-1]) == VALUE


@pytest.mark.parametrize("entries", [
    [(key, VALUE) for key in KEYS[:511]],  # few
    [(key, VALUE[: n % 4]) for n, key in enumerate(KEYS)],  # values of several lengths
    [(key * (1 + n // 999), VALUE) for n, key in enumerate(KEYS)],  # one key of another length
    [(key, bytes(1500)) for key in KEYS],  # values with pages of their own
])  # fmt: skip
def test_what_cannot_be_packed_moves_as_it_is(tmp_path, entries):
    with Store.open(tmp_path / "source") as store, Store.open(tmp_path / "target") as target:
        fill(store, entries)
        move(store, target)
        with store.reading() as before, target.reading() as after:
            found = items_of(after, STATE)
            assert found == items_of(before, STATE)
            assert [name[3:] for name, _ in found] == [key for key, _ in entries]
            assert items_of(after, PACKS) == []


def test_an_entry_asked_for_brings_its_pack_back_and_no_other_one(packed):
    with packed.begin() as txn:
        number, state = len(items_of(txn, PACKS)), BinState(txn, 16)
        assert state.get_many([3, 3], [KEYS[500], b"\x00\x00\x03\xe9"]) == [VALUE, None]
        assert len(items_of(txn, PACKS)) == number - 1
        unpacked = len(items_of(txn, STATE))
        assert 1 < unpacked < 150
        state.get_many([3, 3, 3], [b"", b"\xff", KEYS[500]])
        assert len(items_of(txn, STATE)) == unpacked, "keys in no pack bring none back"
        assert not state.changes.names


def test_every_way_to_an_entry_finds_it_in_a_pack(packed):
    none = np.empty(0, np.int64)
    with packed.begin() as txn:
        state = BinState(txn, 16)
        assert state.first(3, KEYS[10] + b"\0", KEYS[-1]) == KEYS[11]
        assert state.first(3, KEYS[-1] + b"\0", b"\xff") is None
        assert [key for key, _ in state.scan(3, KEYS[300], KEYS[700])] == KEYS[300:700]
        state.delete(3, KEYS[800])
        state.delete(3, b"never there")
        name = stored_name(bin_key(STATE, 3), KEYS[990])
        state.redo([name], [stored_value(name, b"longer value")], none, none)
        state.write_sizes()
        assert read_size(txn, 3) == (ENTRIES - 1, (ENTRIES - 1) * 9 + 7)
        wanted = {KEYS[800]: None, KEYS[990]: b"longer value", KEYS[0]: VALUE}
        assert state.get_many([3] * 3, list(wanted)) == list(wanted.values())
        assert len(stored_items(txn, 3)) == ENTRIES - 1


def test_new_packs_end_before_those_that_there_are(packed, source):
    with packed.begin() as txn:
        state = BinState(txn, 16)
        for key in (KEYS[0], KEYS[400], KEYS[-1]):
            state.get(3, key)
    move(packed, source)
    with source.reading() as txn:
        keys = [key for name, stored in items_of(txn, PACKS) for key, _ in packs.unpacked(name, stored)]
        assert [key[3:] for key in keys] == KEYS


def test_a_bin_in_packs_is_dropped_whole(packed):
    with packed.begin() as txn:
        BinState(txn, 16).get(3, KEYS[77])
        drop_bin(txn, 3, whole=True)
        assert [bytes(name) for name in txn.cursor().iternext(values=False)] == [b"\x00"]


@pytest.mark.parametrize("place", [0, 4, 6, 8, 12, 15, 600, -1])
def test_a_damaged_pack_is_never_read_moved_nor_made_an_image(packed, tmp_path, place):
    with packed.begin() as txn:
        name, stored = items_of(txn, PACKS)[3]
        raw = bytearray(stored)
        raw[place] ^= 4
        txn.put(name, bytes(raw))
        with pytest.raises(CorruptStateError):
            BinState(txn, 16).get(3, name[3:])
        with pytest.raises(CorruptStateError):
            stored_items(txn, 3)
    with Store.open(tmp_path / "other") as other, pytest.raises(CorruptStateError):
        move(packed, other)


def test_a_pack_with_a_damaged_name_hides_no_entry(packed):
    with packed.begin() as txn:
        (name, stored), (following, _) = items_of(txn, PACKS)[3:5]
        key = packs.unpacked(name, stored)[1][0][3:]
        txn.delete(name)
        txn.put(name[:-1] + bytes([name[-1] ^ 1]), stored)
        with pytest.raises(CorruptStateError):
            BinState(txn, 16).get(3, key)
        txn.delete(following)
        with pytest.raises(CorruptStateError, match="where 1000 are recorded"):
            drop_bin(txn, 3, whole=True)


def test_a_damaged_name_hides_the_pack_of_no_other_bin(packed):
    name = bin_key(STATE, 4) + KEYS[0]
    rows = np.frombuffer(name + stored_value(name, VALUE), np.uint8)[None]
    [(pack, stored)] = packs.pack_rows(rows, 7)
    with packed.begin() as txn:
        txn.put(bin_key(PACKS, 5) + pack[3:], stored)
        with pytest.raises(CorruptStateError):
            BinState(txn, 16).get(4, KEYS[0])


def test_entries_of_a_pack_do_not_come_between_a_damaged_one_and_its_place(packed):
    damaged = bin_key(STATE, 3) + KEYS[1]
    with packed.begin() as txn:
        txn.put(damaged, stored_value(damaged, VALUE)[:-1] + b"?")
        with pytest.raises(CorruptStateError):
            BinState(txn, 16).get(3, KEYS[0])


def test_the_only_pack_hides_no_entry_when_its_table_is_damaged(tmp_path):
    with Store.open(tmp_path) as store, store.begin() as txn:
        name = bin_key(STATE, 3) + KEYS[0]
        rows = np.frombuffer(name + stored_value(name, VALUE), np.uint8)[None]
        [(pack, stored)] = packs.pack_rows(rows, 7)
        assert packs.unpacked(pack, stored) == [(name, stored_value(name, VALUE))]
        txn.put(b"\x0a" + pack[1:], stored)
        with pytest.raises(CorruptStateError):
            BinState(txn, 16).get(3, KEYS[0])


def test_an_image_is_the_same_of_both_forms_and_comes_back_in_packs(source, packed, tmp_path):
    with source.reading(buffers=False) as before, packed.reading(buffers=False) as after:
        image = image_of(before, 3, state=True, queue=False)
        assert image == image_of(after, 3, state=True, queue=False)
        expected, sizes = items_of(after, PACKS), read_size(after, 3)
    with Store.open(tmp_path / "restored") as restored, restored.begin() as txn:
        install(txn, image)
        assert (items_of(txn, PACKS), items_of(txn, STATE), read_size(txn, 3)) == (expected, [], sizes)


@pytest.mark.parametrize("what", ["a key", "a value", "a checksum"])
@pytest.mark.parametrize("entry", [0, 1, 500, 998, 999])
def test_an_entry_with_a_flipped_bit_is_not_moved(source, tmp_path, what, entry):
    with source.begin() as txn:
        name = stored_name(bin_key(STATE, 3), KEYS[entry])
        stored = bytearray(txn.get(name))
        if what == "a key":  # between its neighbours
            txn.delete(name)
            txn.put(name[:-1] + bytes([name[-1] | 1]), bytes(stored))
        else:
            stored[0 if what == "a value" else -1] ^= 16
            txn.put(name, bytes(stored))
    with Store.open(tmp_path / "target") as target, pytest.raises(CorruptStateError, match="bin 3 is damaged"):
        move(source, target)


@pytest.mark.parametrize("number", [1, 2, 3, 102, 103])
def test_entries_of_a_pack_are_checked_as_one(number):
    names = [stored_name(bin_key(STATE, 3), key) for key in KEYS[:number]]
    raw = b"".join(name + stored_value(name, VALUE) for name in names)
    rows = np.frombuffer(raw, np.uint8).reshape(number, -1).copy()
    assert len(packs.pack_rows(rows, 7)) == (1 if number < 103 else 2)
    rows[number // 2, 9] ^= 1
    with pytest.raises(CorruptStateError, match="bin 3 is damaged"):
        packs.pack_rows(rows, 7)
