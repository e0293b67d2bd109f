"""Bins in two environments that are written, moved, dropped, cut off and opened again read as a dictionary does.

Packs are made small, so that a few entries fill several.
"""

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from impls.durability.snapshot import image_of, install
from impls.store import moving, packs
from impls.store.bins import begin_drop, copy_bin, drop_bin, drop_piece, read_size, write_size
from impls.store.entries import stored_value
from impls.store.environment import Meta, Store, write_meta
from impls.store.pages import leaves_of
from impls.store.state import BinState
from impls.store.tables import PACKS, STATE, bin_key, bin_range, iter_range

BINS = 2
KEYS = st.one_of(
    st.binary(min_size=3, max_size=3), st.builds(bytes, st.lists(st.sampled_from([0, 1, 255]), min_size=1, max_size=4))
)
VALUES = st.one_of(st.binary(min_size=2, max_size=2), st.binary(max_size=5))
BIN = st.integers(0, BINS - 1)
PLACES = st.lists(st.tuples(BIN, KEYS), min_size=1, max_size=6, unique=True)
UNIFORM = st.lists(st.tuples(BIN, st.binary(min_size=3, max_size=3)), min_size=20, max_size=40, unique=True)
COMMITS = st.sampled_from([True, True, True, False])  # False: the process ends before it


class Died(Exception):  # noqa: N818 - what a process does, not what went wrong
    """A process ends before it commits."""


class StoreMachine(RuleBasedStateMachine):
    """Two workers' environments; `truth` is what their bins have to hold, `at` where each bin is.

    `old` are the copies (store, bin) that a move has left and nobody has begun to drop.
    """

    def __init__(self):
        super().__init__()
        self.ends = ExitStack()  # also of a machine that has found a bug: the next tests share the process
        self.folder = Path(self.ends.enter_context(tempfile.TemporaryDirectory()))
        self.ends.enter_context(patch.object(moving, "LEAST", 1))
        self.ends.enter_context(patch.object(packs, "_BYTES", 40))
        self.stores = [Store.open(self.folder / str(n)) for n in range(2)]
        self.ends.callback(lambda: [store.close() for store in self.stores])
        self.truth, self.at, self.old = {}, [0] * BINS, set()
        for store in self.stores:
            with store.begin() as txn:
                write_meta(txn, Meta.new("q", 0, 0, 0))

    def teardown(self):
        with self.ends:
            for at, bin_ in [*((at, bin_) for bin_, at in enumerate(self.at)), *sorted(self.old)]:
                self.write(at, True, lambda txn, b=bin_: drop_bin(txn, b, whole=True))
            for at, store in enumerate(self.stores):
                self.write(at, True, drop_piece)
                with store.reading() as txn:
                    assert txn.stat()["entries"] == 1, "the meta record alone is left when all bins are dropped"

    def write(self, at, commits, change):
        """Carries out a change in one transaction, which is lost with the process where it does not commit."""
        with suppress(Died), self.stores[at].begin() as txn:
            change(txn)
            if not commits:
                raise Died
        if not commits:
            self.open_again(at)

    def write_state(self, bins, commits, change):
        """Calls change(state, its bins) for each environment that has some of the bins, in a transaction of its own."""
        for at in sorted({self.at[bin_] for bin_ in bins}):
            here = {bin_ for bin_ in bins if self.at[bin_] == at}

            def work(txn, here=here):
                state = BinState(txn, BINS)
                change(state, here)
                state.write_sizes()

            self.write(at, commits, work)

    @rule(at=st.integers(0, 1))
    def open_again(self, at):
        """A new process opens the environment."""
        self.stores[at].close()
        self.stores[at] = Store.open(self.folder / str(at), create=False)

    @rule(places=st.one_of(PLACES, UNIFORM), value=VALUES, commits=COMMITS)
    def put(self, places, value, commits):
        def change(state, bins):
            bins, keys = zip(*[place for place in places if place[0] in bins], strict=True)
            old = state.get_many(bins, keys)
            assert old == [self.truth.get(place) for place in zip(bins, keys, strict=True)]
            state.put_many(bins, keys, [value] * len(keys), old)

        self.write_state({bin_ for bin_, _ in places}, commits, change)
        if commits:
            self.truth |= dict.fromkeys(places, value)

    @rule(places=PLACES)
    def get(self, places):
        def read(state, bins):
            here = [place for place in places if place[0] in bins]
            found = state.get_many([bin_ for bin_, _ in here], [key for _, key in here])
            assert found == [self.truth.get(place) for place in here]

        self.write_state({bin_ for bin_, _ in places}, True, read)

    @rule(bin_=BIN, key=KEYS, commits=COMMITS)
    def delete(self, bin_, key, commits):
        self.write_state({bin_}, commits, lambda state, _: state.delete(bin_, key))
        if commits:
            self.truth.pop((bin_, key), None)

    @rule(places=PLACES, value=st.one_of(st.none(), VALUES), commits=COMMITS)
    def redo(self, places, value, commits):
        """Recovery writes changes in their stored form."""

        def change(state, bins):
            names = [bin_key(STATE, b) + k for b, k in places if b in bins]
            values = [None if value is None else stored_value(name, value) for name in names]
            none = np.empty(0, np.int64)
            state.redo(names, values, none, none)

        self.write_state({bin_ for bin_, _ in places}, commits, change)
        if commits:
            for place in places:
                self.truth.pop(place, None)
            self.truth |= {} if value is None else dict.fromkeys(places, value)

    @rule(bin_=BIN, low=KEYS, high=KEYS)
    def scan(self, bin_, low, high):
        def read(state, _):
            assert state.scan(bin_, low, high) == self.between(bin_, low, high)

        self.write_state({bin_}, True, read)

    @rule(bin_=BIN, low=KEYS, high=KEYS)
    def first(self, bin_, low, high):
        """Another rule than `scan`, behind which no entry of the range is in a pack any more."""

        def read(state, _):
            assert state.first(bin_, low, high) == next((key for key, _ in self.between(bin_, low, high)), None)

        self.write_state({bin_}, True, read)

    @rule(bin_=BIN, commits=COMMITS, as_image=st.booleans())
    def move(self, bin_, commits, as_image):
        """The new owner pulls the bin from its old owner's pages, or restores it from an image."""
        source, target = self.at[bin_], 1 - self.at[bin_]
        old = self.stores[source]
        with old.reading(buffers=False) as view, leaves_of(old.path, view) as leaves:
            assert leaves is not None

            def arrive(txn):
                if as_image:
                    drop_bin(txn, bin_)
                    install(txn, image_of(view, bin_, state=True, queue=False))
                else:
                    copy_bin(view, txn, bin_, leaves)

            self.write(target, commits, arrive)
        if commits:
            self.at[bin_] = target
            self.old = (self.old - {(target, bin_)}) | {(source, bin_)}

    @precondition(lambda self: self.old)
    @rule(data=st.data(), commits=COMMITS, whole=st.booleans())
    def drop(self, data, commits, whole):
        """An old owner drops its copy at once, or begins to."""
        at, bin_ = data.draw(st.sampled_from(sorted(self.old)))
        self.write(at, commits, lambda txn: drop_bin(txn, bin_, whole=True) if whole else begin_drop(txn, bin_))
        if commits:
            self.old.remove((at, bin_))

    @rule(at=st.integers(0, 1), items=st.integers(1, 30), commits=COMMITS)
    def drop_a_piece(self, at, items, commits):
        self.write(at, commits, lambda txn: drop_piece(txn, items))

    def between(self, bin_, low, high):
        return sorted((k, v) for (b, k), v in self.truth.items() if b == bin_ and low <= k < high)

    @invariant()
    def sizes_and_images_are_those_of_state_that_was_never_packed(self):
        with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as plain:
            for bin_ in range(BINS):
                entries = self.between(bin_, b"", b"\xff" * 9)
                sizes = len(entries), sum(len(value) + 4 for _, value in entries)
                with plain.begin() as txn:
                    BinState(txn, BINS).create_entries(bin_, entries)
                    write_size(txn, bin_, *sizes)
                with plain.reading(buffers=False) as txn:
                    whole = image_of(txn, bin_, state=True, queue=False)
                with self.stores[self.at[bin_]].reading(buffers=False) as view:
                    assert read_size(view, bin_) == sizes
                    assert image_of(view, bin_, state=True, queue=False) == whole

    @invariant()
    def no_entry_lies_within_a_pack(self):
        for bin_, at in enumerate(self.at):
            with self.stores[at].reading(buffers=False) as view:
                keys = [name[3:] for name, _ in iter_range(view, *bin_range(STATE, bin_))]
                last = b""
                for name, stored in iter_range(view, *bin_range(PACKS, bin_)):
                    inside = [key[3:] for key, _ in packs.unpacked(name, stored)]
                    assert last < inside[0] or not last
                    assert inside == sorted(inside)
                    assert name[3:] == (last := inside[-1])
                    assert not [key for key in keys if inside[0] <= key <= last]
