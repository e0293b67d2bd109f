"""Packs: neighbouring entries of a bin as one item, the form in which they move.

LMDB takes and gives up an item in about the time of 60 entries' bytes, so a bin that moves is packed on its way. A pack
stays one until one of its entries is asked for: then all of them become entries again (`unpack`). An entry is in one
place only, and no entry lies between the first and the last key of a pack.

A pack's name is table, bin and its last key. Its value is a checksum, the number of entries, the bytes of a key and of
a stored value (uint16, uint16, uint32), and the keys and stored values one after the other.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.checked import checked, open_record, whole_range
from impls.store.entries import CHECK_BYTES, open_value, unsound
from impls.store.tables import PACKS, STATE, bin_range, iter_range

Item = tuple[bytes, bytes]

_HEAD = struct.Struct("<HHI")
_CHECK = 4  # in front of the head
_PREFIX = 3  # table and bin
# Of keys and values of a pack, such that three of them fill a page of LMDB's with its headers. With two a page a bin
# moves in 0.9 of the CPU, but the first look at an entry costs 24 us instead of 12.
_BYTES = 1334
_NO_CUTS = np.empty(0, np.intp)


def pack_rows(rows: NDArray[np.uint8], name_bytes: int, cuts: NDArray[np.intp] = _NO_CUTS) -> list[Item]:
    """Returns packs of a bin's entries, in key order.

    Raises CorruptStateError when an entry does not match its checksum. The entries of a pack are checked as one: a
    CRC-32 is linear, so the exclusive or of entries of one length has that of their checksums. A single damaged entry
    is always found; equal damage to two of a pack is found when they are read.

    Args:
        rows: names and stored values, shape (n, bytes).
        name_bytes: bytes of a name.
        cuts: rows at which a pack begins in any case, ascending.
    """
    width, key_bytes = rows.shape[1] - _PREFIX, name_bytes - _PREFIX
    ends = _ends(len(rows), max(1, (_BYTES - key_bytes) // width), cuts)
    _check_rows(rows, ends)
    prefix = PACKS + rows[0, 1:_PREFIX].tobytes()
    raw = rows[:, _PREFIX:].tobytes()
    packs, begin = [], 0
    for end in ends.tolist():
        name = prefix + raw[(end - 1) * width : (end - 1) * width + key_bytes]
        head = _HEAD.pack(end - begin, key_bytes, width - key_bytes)
        packs.append((name, checked(name, head + raw[begin * width : end * width])))
        begin = end
    return packs


def _ends(number: int, each: int, cuts: NDArray[np.intp]) -> NDArray[np.intp]:
    if not len(cuts):
        return np.append(np.arange(each, number, each), number)
    begins = np.unique(np.concatenate([[0], cuts[cuts < number]]))
    parts = [np.arange(begin, end, each) for begin, end in zip(begins, [*begins[1:], number], strict=True)]
    return np.append(np.concatenate(parts)[1:], number)


def _check_rows(rows: NDArray[np.uint8], ends: NDArray[np.intp]) -> None:
    """Raises CorruptStateError when rows, up to each of the ends, do not match their checksums."""
    if rows.shape[1] < _PREFIX + CHECK_BYTES:
        raise CorruptStateError("An entry is too short for its checksum: its state is damaged.")
    begins = np.concatenate([[0], ends[:-1]])
    sums = np.bitwise_xor.reduceat(rows, begins, axis=0)
    even = (ends - begins) % 2 == 0
    sums[even, -CHECK_BYTES:] ^= _check_of_zeros(rows.shape[1] - CHECK_BYTES)
    if any(unsound(sums)):
        bin_ = int.from_bytes(rows[0, 1:_PREFIX].tobytes(), "big")
        raise CorruptStateError(f"An entry of bin {bin_} is damaged: wrong checksum.")


def _check_of_zeros(number: int) -> NDArray[np.uint8]:
    return np.frombuffer(checked(b"", bytes(number))[:_CHECK], np.uint8)


def unpacked(name: bytes, stored: bytes) -> list[Item]:
    """Returns the entries of a pack as they are stored; raises CorruptStateError when it is damaged."""
    body = open_record(name, stored)
    number, key_bytes, value_bytes = _HEAD.unpack_from(body)
    prefix, width = STATE + name[1:_PREFIX], key_bytes + value_bytes
    begins = range(_HEAD.size, _HEAD.size + number * width, width)
    return [(prefix + body[at : at + key_bytes], body[at + key_bytes : at + width]) for at in begins]


def check_pack(name: bytes, stored: bytes) -> None:
    """Raises CorruptStateError when a pack is damaged."""
    body = open_record(name, stored)
    if len(body) < _HEAD.size or len(body) != _HEAD.size + _payload(*_HEAD.unpack_from(body)):
        raise CorruptStateError("A pack of entries has the wrong length: its state is damaged.")


def _payload(number: int, key_bytes: int, value_bytes: int) -> int:
    return number * (key_bytes + value_bytes)


def packed_rows(packs: Sequence[Item]) -> list[tuple[int, NDArray[np.uint8]]]:
    """Returns the entries of a bin's sound packs: [(bytes of a name, names and stored values, shape (n, bytes))].

    Packs whose entries are of one length give one item, in the order of the packs.
    """
    bodies: dict[tuple[int, int], list[bytes]] = {}
    for _, stored in packs:
        _, key_bytes, value_bytes = _HEAD.unpack_from(stored, _CHECK)
        bodies.setdefault((key_bytes, value_bytes), []).append(stored[_CHECK + _HEAD.size :])
    out = []
    for (key_bytes, value_bytes), raw in bodies.items():
        body = np.frombuffer(b"".join(raw), np.uint8).reshape(-1, key_bytes + value_bytes)
        prefix = np.frombuffer(STATE + packs[0][0][1:_PREFIX], np.uint8)
        rows = np.hstack([np.broadcast_to(prefix, (len(body), _PREFIX)), body])
        out.append((_PREFIX + key_bytes, rows))
    return out


def count_packed(stored: bytes) -> int:
    """Returns the number of entries that a pack says it has."""
    return int.from_bytes(stored[_CHECK : _CHECK + 2], "little")


def _first_key(stored: bytes) -> bytes:
    begin = _CHECK + _HEAD.size
    return stored[begin : begin + int.from_bytes(stored[_CHECK + 2 : _CHECK + 4], "little")]


def packed_entries(txn: lmdb.Transaction, bin_: int) -> int:
    """Returns the number of entries that a bin's packs say they have."""
    return sum(count_packed(stored) for _, stored in iter_range(txn, *bin_range(PACKS, bin_)))


def _bins_with_packs(txn: lmdb.Transaction, names: Sequence[bytes]) -> set[bytes]:
    """Returns the bins, as two bytes, of entries of these names that have packs."""
    cursor = txn.cursor()
    if not names or not cursor.set_range(PACKS):
        return set()
    bins = {name[1:_PREFIX] for name in names}
    return {bin_ for bin_ in bins if cursor.set_range(PACKS + bin_) and bytes(cursor.key())[:_PREFIX] == PACKS + bin_}


def beside_packs(txn: lmdb.Transaction, names: Sequence[bytes]) -> set[bytes]:
    """Returns the names at whose place packs would be that hide entries, see `impls.store.bins.check_absent`."""
    cursor = txn.cursor()
    if not names or not cursor.set_range(PACKS) or bytes(cursor.key())[:1] != PACKS:
        return {PACKS} if names else set()
    bins = _bins_with_packs(txn, names)  # none may be found because a damaged pack of another bin hides them
    return {PACKS + (name[1:] if name[1:_PREFIX] in bins else name[1:_PREFIX]) for name in names}


def unpack(txn: lmdb.Transaction, names: Sequence[bytes]) -> bool:
    """Makes entries of the packs that may have entries of these names, and returns whether there were any.

    Raises CorruptStateError when such a pack is damaged.
    """
    cursor, bins, any_found = txn.cursor(), _bins_with_packs(txn, names), False
    for name in names if bins else ():
        pack = _pack_from(cursor, name) if name[1:_PREFIX] in bins else None
        if pack is not None and _first_key(pack[1]) <= name[_PREFIX:]:
            _replace(txn, pack)
            any_found = True
    return any_found


def unpack_range(txn: lmdb.Transaction, low: bytes, high: bytes, *, first: bool = False) -> None:
    """Makes entries of the packs with entries between two names of a bin, `high` excluded; only of the first if asked.

    Raises CorruptStateError when such a pack is damaged.
    """
    while (pack := _pack_from(txn.cursor(), low)) is not None and _first_key(pack[1]) < high[_PREFIX:]:
        _replace(txn, pack)
        if first:
            return


def packed_between(txn: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[Item]:
    """Yields entries of packs with names low <= name < high of one bin, as they are stored; the packs stay.

    Raises CorruptStateError when such a pack is damaged.
    """
    cursor, name = txn.cursor(), low
    while (pack := _pack_from(cursor, name)) is not None and _first_key(pack[1]) < high[_PREFIX:]:
        yield from (item for item in unpacked(*pack) if low <= item[0] < high)
        name = STATE + pack[0][1:] + b"\0"


def _pack_from(cursor: lmdb.Cursor, name: bytes) -> Item | None:
    """Returns the first pack of an entry's bin that ends at its name or behind it."""
    if not cursor.set_range(PACKS + name[1:]):
        return None
    found = bytes(cursor.key())
    return (found, bytes(cursor.value())) if found[:_PREFIX] == PACKS + name[1:_PREFIX] else None


def _replace(txn: lmdb.Transaction, pack: Item) -> None:
    items = unpacked(*pack)
    for name, stored in whole_range(txn, items[0][0], items[-1][0] + b"\0"):  # new neighbours would hide damaged ones
        open_value(name, stored)
    txn.delete(pack[0])
    txn.cursor().putmulti(items)


def entries_of(txn: lmdb.Transaction, bin_: int) -> list[tuple[Any, Any]]:
    """Returns the names and stored values of a bin's entries, those in packs too, in key order.

    Raises CorruptStateError when a pack is damaged.
    """
    items = list(iter_range(txn, *bin_range(STATE, bin_)))
    packs = [(bytes(name), bytes(stored)) for name, stored in iter_range(txn, *bin_range(PACKS, bin_))]
    opened = [item for pack in packs for item in unpacked(*pack)]
    if not items or not opened:
        return items or opened
    return sorted([*((bytes(name), bytes(stored)) for name, stored in items), *opened])
