"""Records with the checksum of their key and value in front, and what a damaged key hides.

LMDB keeps no checksums. A key that changed stands where the sound one stood, out of order. A search that it misleads
ends beside it, and a range that it cuts short ends at it, so the items beside what was found tell.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.entries import BLOCK_BYTES, CHECK_BYTES, block_numbers, open_blocks, open_value, wrong_rows
from impls.store.tables import DENSE, DUE, META, OFFSETS, OUTBOX, SHAPE, STATE


def put_checked(txn: lmdb.Transaction, key: bytes, value: bytes) -> None:
    """Writes a record with the checksum of its key and value.

    Raises CorruptStateError for one that is not there yet when an item beside it is damaged, which may hide it: a
    second record of the key would be written, and either found later.
    """
    if txn.get(key) is None:
        check_absent(txn, [key])
    txn.put(key, checked(key, value))


def checked(key: bytes, value: bytes) -> bytes:
    """Returns a record as `put_checked` writes it."""
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(4, "little") + value


def get_checked(txn: lmdb.Transaction, key: bytes) -> bytes | None:
    """Returns a record that `put_checked` wrote, None for an absent one.

    Raises CorruptStateError for a damaged one, and for an absent one when an item beside its place is damaged.
    """
    raw = txn.get(key)
    if raw is None:
        check_absent(txn, [key])
        return None
    return open_record(key, bytes(raw))


def open_record(key: bytes, raw: bytes) -> bytes:
    """Returns the value of a record as `put_checked` wrote it; raises CorruptStateError when it is damaged."""
    if zlib.crc32(raw[4:], zlib.crc32(key)).to_bytes(4, "little") != raw[:4]:
        raise CorruptStateError("A record of the worker's state is damaged: its checksum does not match.")
    return raw[4:]


def put_of_epoch(txn: lmdb.Transaction, key: bytes, epoch: int, value: bytes) -> None:
    """Writes a record that every epoch replaces, as `put_checked` does."""
    put_checked(txn, key, epoch.to_bytes(8, "little", signed=True) + value)


def get_of_epoch(txn: lmdb.Transaction, key: bytes, epoch: int) -> bytes | None:
    """Returns a record that `put_of_epoch` wrote in an epoch, None when it is absent or of another epoch.

    Raises CorruptStateError as `get_checked` does.
    """
    raw = get_checked(txn, key)
    return raw[8:] if raw is not None and int.from_bytes(raw[:8], "little", signed=True) == epoch else None


Item = tuple[bytes, bytes]


def put_counted(txn: lmdb.Transaction, items: Sequence[Item], new: int) -> None:
    """Writes distinct items, of which so many are not there yet.

    Raises CorruptStateError when another number was not: with each item that comes a search takes another way, and a
    damaged key that none has met before may lead it past an item, which is there twice then.
    """
    counts = isinstance(txn, lmdb.Transaction)  # a store elsewhere has no tree to be misled in
    before = txn.stat()["entries"] if counts else 0
    txn.cursor().putmulti(items)
    if counts and txn.stat()["entries"] - before != new:
        raise CorruptStateError("Items were written beside others of the same names: the state is damaged.")


_FIRST, _MOST = 16, 512  # items of a chunk


def check_absent(txn: lmdb.Transaction, names: Iterable[bytes]) -> None:
    """Raises CorruptStateError when the items at the place of absent ones are damaged."""
    cursor = txn.cursor()
    beside: dict[bytes, bytes] = {}
    for name in names:
        found = cursor.set_range(name)
        above = _item_at(cursor) if found else None
        below = _item_at(cursor) if (cursor.prev() if found else cursor.last()) else None
        if (above is not None and above[0] <= name) or (below is not None and below[0] >= name):
            raise CorruptStateError(f"Items of {_place_of(name)} are out of order: the state is damaged.")
        beside |= dict(item for item in (above, below) if item is not None)
    for name, stored in beside.items():
        _verify(name, stored)


def whole_range(txn: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[Item]:
    """Yields (name, stored value) with low <= name < high, in key order, whose own checksums the caller checks.

    Raises CorruptStateError when the item before the first or behind the last is damaged: it may be one of the range,
    and hide others. Whoever stops earlier learns of the one before only.
    """
    cursor = txn.cursor()
    found = cursor.set_range(low)
    if cursor.prev() if found else cursor.last():
        _verify(*_item_at(cursor))
    if not found:
        return
    cursor.set_range(low)
    for name, stored in cursor.iternext():
        item = bytes(name), bytes(stored)
        if item[0] >= high:
            _verify(*item)
            return
        yield item


def _whole_items(txn: lmdb.Transaction, low: bytes, high: bytes) -> list[Item]:
    """Returns what `whole_range` yields, in half the time where all is wanted.

    Behind a damaged key there may be items of others, the damaged one among them.
    """
    cursor = txn.cursor()
    found = cursor.set_range(low)
    if cursor.prev() if found else cursor.last():
        _verify(*_item_at(cursor))
    items: list[Item] = []
    if not found:
        return items
    cursor.set_range(low)
    stored, size = cursor.iternext(), _FIRST
    while chunk := [(bytes(name), bytes(value)) for name, value in islice(stored, size)]:
        if chunk[-1][0] >= high:
            items += takewhile(lambda item: item[0] < high, chunk)
            _verify(*next(item for item in chunk if item[0] >= high))
            break
        items, size = items + chunk, min(2 * size, _MOST)
    return items


def check_ends(txn: lmdb.Transaction, low: bytes, high: bytes) -> None:
    """Raises CorruptStateError when the first or the last item of a half-open range is damaged.

    A damaged key that stands there may be one of the bin beside it, which would lose an item with this range.
    """
    cursor = txn.cursor()
    if not cursor.set_range(low) or bytes(cursor.key()) >= high:
        return
    _verify(*_item_at(cursor))
    if cursor.prev() if cursor.set_range(high) else cursor.last():
        _verify(*_item_at(cursor))


def run_length(txn: lmdb.Transaction, low: bytes, high: bytes) -> int:
    """Returns how many items are in a half-open range, one behind the other.

    One that is out of order counts too. Raises CorruptStateError when the item before the first or behind the last is
    damaged.
    """
    cursor = txn.cursor()
    if not cursor.set_range(low) or bytes(cursor.key()) >= high:
        return 0
    if cursor.prev():
        _verify(*_item_at(cursor))
    cursor.set_range(low)
    names, size, number = cursor.iternext(values=False), _FIRST, 0
    while chunk := list(islice(names, size)):  # to ask each name would double the time, as in `tables.chunks`
        if bytes(chunk[-1]) >= high:
            inside = sum(1 for _ in takewhile(lambda name: bytes(name) < high, chunk))
            if len(chunk) < size:  # the names came to an end
                cursor.last()
            for _ in range(len(chunk) - inside - 1):
                cursor.prev()
            _verify(*_item_at(cursor))
            return number + inside
        number, size = number + len(chunk), min(2 * size, _MOST)
    return number


def _verify(name: bytes, stored: bytes) -> None:
    """Raises CorruptStateError when an item is damaged, whatever table its key says it is of."""
    if name[:1] in {STATE, DUE, OFFSETS, SHAPE}:
        open_value(name, stored)
    elif name[:1] != DENSE:
        open_record(name, stored)
    elif len(stored) != BLOCK_BYTES:
        raise CorruptStateError("A block of counts has the wrong length: its state is damaged.")
    else:
        open_blocks(stored, block_numbers([name]), f"bin {int.from_bytes(name[1:3], 'big')}")


def _place_of(name: bytes) -> str:
    return "the worker" if name[:1] in {META, OUTBOX} else f"bin {int.from_bytes(name[1:3], 'big')}"


def _item_at(cursor: lmdb.Cursor) -> Item:
    return bytes(cursor.key()), bytes(cursor.value())


_DUE_BYTES = 3 + 8 + CHECK_BYTES  # table and bin, time, checksum


def earliest_timers(txn: lmdb.Transaction) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the bins that have timers, and the time of the earliest one of each; raises CorruptStateError."""
    items = _whole_items(txn, DUE, bytes([DUE[0] + 1]))
    raw = b"".join([part for item in items for part in item])
    if len(raw) != len(items) * _DUE_BYTES:
        raise CorruptStateError("The time of a bin's earliest timer has the wrong length: its state is damaged.")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, _DUE_BYTES)
    numbers, times = (rows[:, a:b].copy().view(kind)[:, 0] for a, b, kind in ((1, 3, ">u2"), (3, 11, ">i8")))
    if len(wrong_rows(rows)):
        raise CorruptStateError("The time of a bin's earliest timer is damaged: wrong checksum.")
    return numbers.astype(np.int64), times.astype(np.int64)
