"""Bugs planted in the store that a simulation finds too rarely: entries that damage hides are taken for absent."""

import contextlib
import sys
from itertools import product
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from chaos.pages import leaf_nodes

from impls.errors import CorruptStateError
from impls.store import bins
from impls.store.bins import BinArrival, begin_drop, copy_bin, drop_piece
from impls.store.entries import stored_value
from impls.store.environment import Store
from impls.store.state import BinState
from impls.store.tables import STATE, bin_key, drop_range

BINS = 256
HERE = (1, 2, 3)
OTHERS = (0, *HERE, 5, 40)  # what is done is done to each of them
KEYS = [bytes([n]) * 4 for n in range(0, 240, 16)]


def damaged(path, bin_, key, bit):
    """Opens an environment of three bins in which a bit of one name has flipped."""
    with Store.open(path) as store, store.begin() as txn:
        state = BinState(txn, BINS)
        for other in HERE:
            state.create_entries(other, [(k, b"v") for k in KEYS])
        state.write_sizes()
    file = path / "data.mdb"
    raw = bytearray(file.read_bytes())
    for node in list(leaf_nodes(raw, 4096)):
        if node.key(raw) == bin_key(STATE, bin_) + key:
            raw[node.key_at + bit // 8] ^= 1 << bit % 8
    file.write_bytes(raw)
    return Store.open(path)


def lost(txn, wanted):
    """Returns how many entries of bins are taken for absent; one that is refused is not."""
    found = 0
    for bin_ in wanted:
        for key in KEYS:
            try:
                found += BinState(txn, BINS).get(bin_, key) is None
            except CorruptStateError:
                continue
    return found


def losses(path, work, bits):
    """Returns how many entries are lost over all places of the damage; work that is refused loses none."""
    found = 0
    for number, (bin_, key, bit) in enumerate(product(HERE, (KEYS[0], KEYS[7], KEYS[-1]), bits)):
        with damaged(path / str(number), bin_, key, bit) as store:
            for other in OTHERS:
                txn = store.begin()
                with contextlib.suppress(CorruptStateError):
                    found += work(store, txn, bin_, other)
                txn.abort()
    return found


def came(_store, txn, _bin, other):
    """A bin of another worker comes beside what is damaged."""
    if other in HERE:
        return 0
    bins.check_places(txn, [other])
    arrival, names = BinArrival(txn, other), [bin_key(STATE, other) + key for key in KEYS]
    arrival.put([(name, stored_value(name, b"w")) for name in names])
    arrival.end(len(KEYS), len(KEYS))
    return lost(txn, HERE)


def copied(store, txn, bin_, _other):
    """The damaged bin is copied, here into an environment that has no other."""
    drop_range(txn, STATE, bytes([255]))
    with store.reading(buffers=False) as view:
        copy_bin(view, txn, bin_)
    return lost(txn, [bin_])


def dropped(_store, txn, bin_, other):
    """A piece of one item is dropped of the bin beside the damaged one."""
    if other not in HERE or other == bin_:
        return 0
    begin_drop(txn, other)
    drop_piece(txn, 1)
    return lost(txn, [bin_])


def bins_come_beside_damaged_keys(patch):
    """Both neighbours of what such a key hides are sound behind it."""
    patch.setattr(bins, "check_places", lambda *_: None)
    patch.setattr(bins, "check_arrived", lambda *_: None)


def bins_copied_in_whatever_order(patch):
    """A damaged key comes to stand where it belongs, and the sound one is taken for absent."""
    patch.setattr(bins, "_check_order", lambda _names: None)


def items_of_another_bin_dropped(patch):
    patch.setattr(bins, "check_ends", lambda *_: None)


# what is done beside the damage, and the bits of a name of which one flips: those of its bin, or of its key
BUGS = {
    bins_come_beside_damaged_keys: (came, range(8, 24)),
    bins_copied_in_whatever_order: (copied, range(24, 40)),
    items_of_another_bin_dropped: (dropped, range(8, 24)),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_entries_are_lost_with_a_planted_bug_and_not_without_it(plant, tmp_path):
    assert losses(tmp_path / "sound", *BUGS[plant]) == 0
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert losses(tmp_path / "planted", *BUGS[plant]) > 0
