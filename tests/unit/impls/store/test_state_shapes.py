"""A bin's state takes another shape: its entries, also those in packs, and the shape itself moves with the bin."""

import pytest

from impls.store.bins import copy_bin, read_size
from impls.store.environment import Store
from impls.store.pages import leaves_of
from impls.store.state import BinState

KEYS = [f"{number:06}".encode() for number in range(6_000)]


@pytest.fixture
def stores(tmp_path):
    with Store.open(tmp_path / "a") as first, Store.open(tmp_path / "b") as second:
        yield first, second


def filled(store):
    with store.begin() as txn:
        state = BinState(txn, 4)
        state.create_entries(1, ((key, b"old") for key in KEYS))
        state.write_sizes()


def test_entries_are_turned_and_deleted_and_counted(stores):
    store, _ = stores
    filled(store)
    with store.begin() as txn:
        state = BinState(txn, 4)
        state.turn(1, 7, lambda key, value: None if key.endswith(b"9") else value + key[-1:])
        state.write_sizes()
        assert state.shape(1) == 7
        assert state.get(1, KEYS[5]) == b"old5"
        assert state.get(1, KEYS[9]) is None
        assert read_size(txn, 1)[0] == len(KEYS) * 9 // 10 + 1  # and the shape
        assert len(state.changes.names) == len(KEYS) + 1
        state.turn(1, 8, lambda _key, value: value)
        state.write_sizes()
        assert (state.shape(1), state.shape(2)) == (8, 0)


def test_the_shape_moves_with_the_bin_and_packs_are_turned_too(stores):
    store, other = stores
    filled(store)
    with store.begin() as txn:
        state = BinState(txn, 4)
        state.turn(1, 3, lambda _key, value: value + b"3")
        state.write_sizes()
    with store.reading(buffers=False) as view, leaves_of(store.path, view) as leaves, other.begin() as txn:
        copy_bin(view, txn, 1, leaves)
        state = BinState(txn, 4)
        assert state.shape(1) == 3
        state.turn(1, 5, lambda _key, value: value + b"5")
        state.write_sizes()
        assert set(state.get_many([1] * len(KEYS), KEYS)) == {b"old35"}
        assert read_size(txn, 1)[0] == len(KEYS) + 1
