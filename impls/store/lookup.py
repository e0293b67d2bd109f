"""Entries of a key, read beside the worker that writes them: nothing is written, and packs stay packs."""

import lmdb

from impls.errors import CorruptStateError
from impls.store import naming
from impls.store.checked import check_absent, whole_range
from impls.store.entries import SLOTS, block_numbers, open_blocks, open_entries
from impls.store.packs import beside_packs, packed_between
from impls.store.tables import DENSE, SIZE, STATE, bin_key

Entry = tuple[bytes, bytes]


def has_bin(txn: lmdb.Transaction, bin_: int) -> bool:
    """Returns whether a bin's size is recorded, as that of one which has come or has had an entry is."""
    return txn.get(bin_key(SIZE, bin_)) is not None


def entries_between(txn: lmdb.Transaction, bin_: int, low: bytes, high: bytes) -> list[Entry]:
    """Returns (key, value) of a bin's entries with low <= key < high, in key order.

    Raises CorruptStateError when one of them is damaged, or what stands beside their place.
    """
    prefix = bin_key(STATE, bin_)
    bounds = prefix + low, prefix + high
    items = sorted([*whole_range(txn, *bounds), *packed_between(txn, *bounds)])
    if not items:
        check_absent(txn, [bounds[0], *beside_packs(txn, [bounds[0]])])
    return open_entries(items)


def _first_between(txn: lmdb.Transaction, bin_: int, low: bytes, high: bytes) -> bytes | None:
    """Returns the lowest key of a bin's entries with low <= key < high, None when there is none."""
    prefix = bin_key(STATE, bin_)
    bounds = prefix + low, prefix + high
    both = whole_range(txn, *bounds), packed_between(txn, *bounds)
    found = [next((name for name, _ in items), None) for items in both]
    return min((name[len(prefix) :] for name in found if name is not None), default=None)


def count_at(txn: lmdb.Transaction, bin_: int, slot: int) -> int:
    """Returns the count at a place of a dense bin, which must be there; raises CorruptStateError otherwise."""
    block, place = divmod(slot, SLOTS)
    name = bin_key(DENSE, bin_) + block.to_bytes(4, "big")
    raw = txn.get(name)
    if raw is None:
        raise CorruptStateError(f"Bin {bin_} lacks a block of counts: its state is damaged.")
    return int(open_blocks(bytes(raw), block_numbers([name]), f"bin {bin_}")[0, place])


_FAMILIES = (naming.VALUE, naming.LIST, naming.MAP, naming.ITEM)


def keyed_entries(txn: lmdb.Transaction, bin_: int, key: bytes) -> list[Entry]:
    """Returns the entries of a key's state variables, in key order, see `impls.store.naming`.

    Names of variables come from the store: of each family the lowest name tells one, and behind its entries is the
    next. Raises CorruptStateError as `entries_between` does.
    """
    part, found = naming.key_part(key), list[Entry]()
    for family in _FAMILIES:
        low, high = family, bytes([family[0] + 1])
        while (name := _first_between(txn, bin_, low, high)) is not None:
            label = name[: 2 + name[1]]
            found += entries_between(txn, bin_, label + part, naming.after(label + part))
            low = naming.after(label)
    return found


def timers_of_key(txn: lmdb.Transaction, bin_: int, key: bytes) -> list[Entry]:
    """Returns the entries of a key's timers, found among all timers of its bin."""
    timers = entries_between(txn, bin_, naming.TIMER, naming.VALUE)
    return [(name, value) for name, value in timers if naming.timer_of(name, value)[1] == key]


def own_timers(txn: lmdb.Transaction, bin_: int, key: bytes) -> list[Entry]:
    """Returns what `timers_of_key` does where timers are kept by key too, see `naming.own_timer_name`."""
    head = naming.TIMERS + naming.key_part(key)
    own = entries_between(txn, bin_, head, naming.after(head))
    return [naming.timer_name(naming.time_of(name[len(head) :]), key) for name, _ in own]
