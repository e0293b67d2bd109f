"""Bins that are dropped piece by piece: what is left is known behind a crash, and no other bin loses an item."""

import pytest

from impls.errors import CorruptStateError
from impls.store.bins import begin_drop, copy_bin, drop_bin, drop_piece, read_size, stored_items
from impls.store.environment import Meta, Store, write_meta
from impls.store.pages import leaves_of
from impls.store.state import BinState
from impls.store.tables import DROPPED, OFFSETS, PACKS, STATE, bin_key, bin_range, iter_range

ENTRIES = 1000
KEYS = [n.to_bytes(4, "big") for n in range(ENTRIES)]


def names(txn, bin_, tables=(STATE, DROPPED, PACKS)):
    return [bytes(name) for table in tables for name, _ in iter_range(txn, *bin_range(table, bin_))]


def open_filled(path, bins=(2, 3, 4)):
    store = Store.open(path)
    with store.begin() as txn:
        write_meta(txn, Meta.new("q", 0, 0, 0))
        state = BinState(txn, 16)
        for bin_ in bins:
            state.create_entries(bin_, [(key, b"v") for key in KEYS])
        n = len(bins)
        state.put_offsets(bins, [0] * n, [(7, 0)] * n, new=[True] * n)
        state.write_sizes()
    return store


@pytest.fixture
def store(tmp_path):
    with open_filled(tmp_path / "store") as store:
        yield store


@pytest.mark.parametrize("most", [1, 64, 999, 1000, 1001, 5000])
def test_pieces_take_the_bins_away_and_nothing_else(store, most):
    with store.begin() as txn:
        kept = [(bytes(n), bytes(v)) for n, v in stored_items(txn, 3)]
        for bin_ in (2, 4):
            begin_drop(txn, bin_)
            assert read_size(txn, bin_) == (0, 0)
    left = 2 * ENTRIES
    while left > 0:
        with store.begin() as txn:
            drop_piece(txn, most)
            left -= most
            found = sum(len(names(txn, bin_, (STATE,))) for bin_ in (2, 4))
            assert found == max(left, 0)
    with store.begin() as txn:
        drop_piece(txn, most)  # an end that coincides with a piece's is noticed with the next one
        assert names(txn, 2) == names(txn, 4) == []
        assert [(bytes(n), bytes(v)) for n, v in stored_items(txn, 3)] == kept
        assert read_size(txn, 3)[0] == ENTRIES + 1


def test_a_drop_that_has_begun_goes_on_in_an_environment_that_is_opened_again(tmp_path):
    with open_filled(tmp_path / "store") as store, store.begin() as txn:
        begin_drop(txn, 3)
        drop_piece(txn, 300)
    with Store.open(tmp_path / "store") as store, store.begin() as txn:
        assert len(names(txn, 3, (STATE,))) == ENTRIES - 300
        drop_piece(txn)
        assert names(txn, 3) == []


def test_a_bin_that_comes_back_is_whole_and_nothing_of_it_is_dropped(store, tmp_path):
    with store.begin() as txn:
        begin_drop(txn, 3)
        drop_piece(txn, 300)
    with open_filled(tmp_path / "other", bins=(3,)) as other:
        with other.reading(buffers=False) as view, leaves_of(other.path, view) as leaves, store.begin() as txn:
            copy_bin(view, txn, 3, leaves)
        with store.begin() as txn:
            drop_piece(txn)
            assert read_size(txn, 3)[0] == ENTRIES + 1
            assert len(stored_items(txn, 3)) == ENTRIES + 1


@pytest.mark.parametrize("begun", [False, True])
def test_a_whole_drop_takes_what_pieces_have_left(store, begun):
    with store.begin() as txn:
        begin_drop(txn, 3)
        if begun:
            drop_piece(txn, 10)
        drop_bin(txn, 3, whole=True)
        assert names(txn, 3) == []


def test_a_bin_whose_pieces_are_not_what_was_recorded_is_damaged(store):
    with store.begin() as txn:
        begin_drop(txn, 3)
        drop_piece(txn, 300)
        txn.delete(names(txn, 3, (STATE,))[50])
        with pytest.raises(CorruptStateError, match="Bin 3 holds 1000 entries where 1001 are recorded"):
            drop_piece(txn)


def test_a_damaged_record_of_a_drop_deletes_no_other_bin(store):
    with store.begin() as txn:
        begin_drop(txn, 3)
        stored = bytes(txn.pop(bin_key(DROPPED, 3)))
        txn.put(bin_key(DROPPED, 2), stored)  # a flipped bit of its name
        with pytest.raises(CorruptStateError):
            drop_piece(txn)
        assert len(names(txn, 2, (STATE,))) == ENTRIES


def test_another_record_whose_name_is_damaged_is_no_record_of_a_drop(store):
    with store.begin() as txn:
        stored = bytes(txn.pop(names(txn, 3, (STATE,))[50]))
        txn.put(bin_key(DROPPED, 3) + KEYS[50], stored)  # flipped bits made its table another one
        with pytest.raises(CorruptStateError, match="checksum does not match"):
            drop_piece(txn)


def test_offsets_are_gone_when_a_drop_has_begun(store):
    with store.begin() as txn:
        assert names(txn, 3, (OFFSETS,))
        begin_drop(txn, 3)
        assert not names(txn, 3, (OFFSETS,))
