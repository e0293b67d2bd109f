"""Leaf pages read without LMDB's cursor: what it reads, or nothing."""

import shutil

import numpy as np
import pytest

from impls.store.entries import stored_name, stored_value
from impls.store.environment import Meta, Store, write_meta
from impls.store.pages import Leaves, UnknownFormError, leaves_of
from impls.store.state import BinState
from impls.store.tables import STATE, bin_key, bin_range, iter_range

NONE = pytest.raises(UnknownFormError)


def fill(store, bins=8, entries=3000):
    """Entries that come in no order, so that pages split; some are deleted again."""
    random = np.random.default_rng(7)
    with store.begin() as txn:
        write_meta(txn, Meta.new("q", 0, 0, 0))
    for _ in range(3):
        with store.begin() as txn:
            for bin_ in range(bins):
                for key in random.integers(0, 1 << 60, entries // 3).tolist():
                    name = stored_name(bin_key(STATE, bin_), key.to_bytes(8, "big"))
                    txn.put(name, stored_value(name, b"12"))
                    if key % 5 == 0:
                        txn.delete(name)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "w") as opened:
        yield opened


def rows_of(leaves, bin_):
    return b"".join(rows.tobytes() for _, rows in leaves.rows(STATE, bin_))


@pytest.mark.parametrize("entries", [3, 90, 3000])
def test_pages_say_what_the_cursor_says(store, entries):
    fill(store, entries=entries)
    with store.reading(buffers=False) as view, leaves_of(store.path, view) as leaves:
        for bin_ in range(8):
            expected = b"".join(name + value for name, value in iter_range(view, *bin_range(STATE, bin_)))
            assert rows_of(leaves, bin_) == expected != b""
        assert rows_of(leaves, 8) == b""


def test_what_is_read_ahead_is_what_was_there(store):
    fill(store)
    with store.reading(buffers=False) as view, leaves_of(store.path, view) as leaves:
        before = rows_of(leaves, 3)
        for bin_ in (0, 3, 7, 8, 9_999):
            leaves.read_ahead(bin_)
        assert rows_of(leaves, 3) == before != b""
        leaves._root = 1 << 40
        leaves.read_ahead(3)


def test_a_reader_sees_its_own_commit(store):
    fill(store)
    with store.reading(buffers=False) as view, leaves_of(store.path, view) as leaves:
        before = rows_of(leaves, 3)
        fill(store)
        assert rows_of(leaves, 3) == before
        fill(store)
        with leaves_of(store.path, view) as late:
            assert late is None, "the file tells of the last two commits only"


def test_a_write_transaction_has_pages_that_the_file_has_not(store):
    fill(store)
    with store.begin() as txn, leaves_of(store.path, txn) as leaves:
        assert leaves is None


def test_another_environment_at_the_same_place_is_not_read(store, tmp_path):
    with Store.open(tmp_path / "other") as other:
        for each in (store, other):
            fill(each)
        with store.reading() as view:
            assert Leaves(store.path / "data.mdb", view).close() is None
            with NONE:
                Leaves(other.path / "data.mdb", view)


@pytest.mark.parametrize("size", [0, 100, 4096, 8192, 3 * 4096])
def test_a_file_that_is_cut_off_is_not_read(store, tmp_path, size):
    fill(store)
    shutil.copy(store.path / "data.mdb", copy := tmp_path / "copy")
    with copy.open("r+b") as file:
        file.truncate(size)
    with store.reading() as view, NONE:
        Leaves(copy, view)


def test_damaged_pages_are_read_as_they_are_or_not_at_all(store, tmp_path):
    """Whatever byte is wrong: no exception but one, and nothing beside the pages is read."""
    fill(store, bins=2, entries=600)
    whole, random, unknown = (store.path / "data.mdb").read_bytes(), np.random.default_rng(5), 0
    with store.reading() as view:
        for at in [*range(2 * 4096, 2 * 4096 + 64), *random.integers(8192, len(whole), 300).tolist()]:
            raw = bytearray(whole)
            raw[at] ^= 1 << int(random.integers(8))
            copy = tmp_path / "copy"
            copy.write_bytes(raw)
            try:
                with Leaves(copy, view) as leaves:
                    assert len(rows_of(leaves, 0)) % 17 == 0
            except UnknownFormError:
                unknown += 1
    assert unknown > 5


def test_values_of_several_lengths_are_left_to_the_cursor(store):
    fill(store)
    with store.begin() as txn:
        state = BinState(txn, 16)
        state.create_entries(9, [(bytes([n]), bytes(n % 2)) for n in range(100)])
    with store.reading() as view, leaves_of(store.path, view) as leaves:
        with NONE:
            rows_of(leaves, 9)
        assert rows_of(leaves, 7)
