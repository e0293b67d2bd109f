"""State that moves in packs reads as state that never moved, whatever is done to it in between."""

import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from impls.durability.snapshot import image_of, install
from impls.store import moving, packs
from impls.store.bins import copy_bin, drop_bin, read_size, write_size
from impls.store.entries import stored_value
from impls.store.environment import Store
from impls.store.meta import Meta, write_meta
from impls.store.pages import leaves_of
from impls.store.state import BinState
from impls.store.tables import PACKS, STATE, bin_key, bin_range, iter_range

BINS = 2
KEYS = st.one_of(
    st.binary(min_size=3, max_size=3),
    st.builds(bytes, st.lists(st.sampled_from([0, 1, 255]), min_size=1, max_size=4)),
)
VALUES = st.one_of(st.binary(min_size=2, max_size=2), st.binary(max_size=5))
BIN = st.integers(0, BINS - 1)
PLACES = st.lists(st.tuples(BIN, KEYS), min_size=1, max_size=6, unique=True)
UNIFORM = st.lists(st.tuples(BIN, st.binary(min_size=3, max_size=3)), min_size=20, max_size=40, unique=True)
STEPS = st.lists(
    st.one_of(
        st.just(("move",)),
        st.just(("restore",)),
        st.tuples(st.just("put"), PLACES, VALUES),
        st.tuples(st.just("put"), UNIFORM, st.binary(min_size=2, max_size=2)),
        st.tuples(st.just("get"), PLACES),
        st.tuples(st.just("delete"), BIN, KEYS),
        st.tuples(st.just("scan"), BIN, KEYS, KEYS),
        st.tuples(st.just("first"), BIN, KEYS, KEYS),
        st.tuples(st.just("redo"), PLACES, st.one_of(st.none(), VALUES)),
    ),
    max_size=14,
)


class State:
    """State in one of two environments, between which it moves, and what it has to be."""

    def __init__(self, folder):
        self.stores = [Store.open(folder / str(n)) for n in range(2)]
        self.truth, self.at = {}, 0
        for store in self.stores:
            with store.begin() as txn:
                write_meta(txn, Meta.new("q", 0, 0, 0))

    def do(self, what, *given):
        if what in {"move", "restore"}:
            getattr(self, what)()
            return
        with self.stores[self.at].begin() as txn:
            getattr(self, what)(BinState(txn, BINS), *given)

    def move(self):
        old, self.at = self.stores[self.at], 1 - self.at
        with old.reading(buffers=False) as view, leaves_of(old.path, view) as leaves:
            assert leaves is not None
            with self.stores[self.at].begin() as txn:
                for bin_ in range(BINS):
                    copy_bin(view, txn, bin_, leaves)
        with old.begin() as txn:
            for bin_ in range(BINS):
                drop_bin(txn, bin_, whole=True)
            assert txn.stat()["entries"] == 1, "the meta record"

    def restore(self):
        """Moves the state by images of its bins."""
        old, self.at = self.stores[self.at], 1 - self.at
        with old.reading(buffers=False) as view, self.stores[self.at].begin() as txn:
            for bin_ in range(BINS):
                drop_bin(txn, bin_)
                install(txn, image_of(view, bin_, state=True, queue=False))

    def put(self, state, places, value):
        bins, keys = [b for b, _ in places], [k for _, k in places]
        old = state.get_many(bins, keys)
        assert old == [self.truth.get(place) for place in places]
        state.put_many(bins, keys, [value] * len(places), old)
        state.write_sizes()
        self.truth |= dict.fromkeys(places, value)

    def get(self, state, places):
        found = state.get_many([b for b, _ in places], [k for _, k in places])
        assert found == [self.truth.get(place) for place in places]

    def delete(self, state, bin_, key):
        state.delete(bin_, key)
        state.write_sizes()
        self.truth.pop((bin_, key), None)

    def between(self, bin_, low, high):
        return sorted((k, v) for (b, k), v in self.truth.items() if b == bin_ and low <= k < high)

    def scan(self, state, bin_, low, high):
        assert state.scan(bin_, low, high) == self.between(bin_, low, high)

    def first(self, state, bin_, low, high):
        assert state.first(bin_, low, high) == next((key for key, _ in self.between(bin_, low, high)), None)

    def redo(self, state, places, value):
        names = [bin_key(STATE, b) + k for b, k in places]
        values = [None if value is None else stored_value(name, value) for name in names]
        none = np.empty(0, np.int64)
        state.redo(names, values, none, none)
        state.write_sizes()
        for place in places:
            self.truth.pop(place, None)
            if value is not None:
                self.truth[place] = value

    def check(self):
        """Sizes and images are those of state that was never packed, and no entry lies within a pack."""
        with (
            self.stores[self.at].reading(buffers=False) as view, tempfile.TemporaryDirectory() as folder,
            Store.open(Path(folder)) as plain,
        ):  # fmt: skip
            for bin_ in range(BINS):
                entries = self.between(bin_, b"", b"\xff" * 9)
                sizes = len(entries), sum(len(value) + 4 for _, value in entries)
                assert read_size(view, bin_) == sizes
                with plain.begin() as txn:
                    BinState(txn, BINS).create_entries(bin_, entries)
                    write_size(txn, bin_, *sizes)
                with plain.reading(buffers=False) as txn:
                    whole = image_of(txn, bin_, state=True, queue=False)
                assert image_of(view, bin_, state=True, queue=False) == whole
                self.check_places(view, bin_)

    def check_places(self, view, bin_):
        keys = [name[3:] for name, _ in iter_range(view, *bin_range(STATE, bin_))]
        last = b""
        for name, stored in iter_range(view, *bin_range(PACKS, bin_)):
            inside = [key[3:] for key, _ in packs.unpacked(name, stored)]
            assert last < inside[0] or not last
            assert inside == sorted(inside)
            assert name[3:] == (last := inside[-1])
            assert not [key for key in keys if inside[0] <= key <= last]

    def close(self):
        for store in self.stores:
            store.close()


@given(STEPS)
def test_packed_state_reads_as_state_that_never_moved(steps):
    with tempfile.TemporaryDirectory() as folder, patch.object(moving, "LEAST", 1), patch.object(packs, "_BYTES", 40):
        state = State(Path(folder))
        try:
            for step in steps:
                state.do(*step)
                state.check()
        finally:
            state.close()


def test_moves_pack_at_all(tmp_path):
    with patch.object(moving, "LEAST", 1), patch.object(packs, "_BYTES", 100):
        state = State(tmp_path)
        state.do("put", [(1, bytes([n, 0])) for n in range(200)], b"v")
        state.move()
        state.do("get", [(1, b"\x80\x00")])
        with state.stores[state.at].reading() as view:
            assert (packs.packed_entries(view, 1), len(list(iter_range(view, *bin_range(STATE, 1))))) == (186, 14)
        state.check()
        state.close()
