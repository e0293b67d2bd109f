"""What a damaged key hides: it is not where it belongs, and a search or a range may end at it.

LMDB keeps no checksums. A key that changed stands where the sound one stood, out of order. A search that it misleads
ends beside it, and a range that it cuts short ends at it, so the items beside what was found tell.
"""

from collections.abc import Iterable, Iterator

import lmdb

from impls.errors import CorruptStateError
from impls.store.blocks import BLOCK_BYTES
from impls.store.checked import open_record
from impls.store.entries import open_value
from impls.store.tables import DENSE, DUE, OFFSETS, SHAPE, STATE

__all__ = ["check_absent", "whole_range"]

Item = tuple[bytes, bytes]


def check_absent(txn: lmdb.Transaction, names: Iterable[bytes]) -> None:
    """Raises CorruptStateError when the items at the place of absent ones are damaged."""
    cursor = txn.cursor()
    beside: dict[bytes, bytes] = {}
    for name in names:
        found = cursor.set_range(name)
        above = _item_at(cursor) if found else None
        below = _item_at(cursor) if (cursor.prev() if found else cursor.last()) else None
        if (above is not None and above[0] <= name) or (below is not None and below[0] >= name):
            bin_ = int.from_bytes(name[1:3], "big")
            raise CorruptStateError(f"Items of bin {bin_} are out of order: the state is damaged.")
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


def _verify(name: bytes, stored: bytes) -> None:
    """Raises CorruptStateError when an item is damaged, whatever table its key says it is of."""
    if name[:1] in {STATE, DUE, OFFSETS, SHAPE}:
        open_value(name, stored)
    elif name[:1] != DENSE:
        open_record(name, stored)
    elif len(stored) != BLOCK_BYTES:
        raise CorruptStateError("A block of counts has the wrong length: its state is damaged.")


def _item_at(cursor: lmdb.Cursor) -> Item:
    return bytes(cursor.key()), bytes(cursor.value())
