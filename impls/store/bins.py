"""Bins as a whole: their sizes, copying and dropping them."""

import struct
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from operator import lt
from typing import Any

import lmdb

from impls.errors import CorruptStateError
from impls.store.checked import check_absent, check_ends, checked, get_checked, open_record, put_checked, run_length
from impls.store.entries import BLOCK_BYTES, block_numbers, open_blocks, verify_entries
from impls.store.moving import moving_packs
from impls.store.packs import count_packed, entries_of, packed_entries
from impls.store.pages import Leaves
from impls.store.tables import (
    DENSE,
    DROPPED,
    DUE,
    OFFSETS,
    PACKS,
    SIZE,
    STATE,
    STATE_TABLES,
    bin_key,
    bin_of,
    bin_range,
    chunks,
    drop_range,
    iter_range,
)

_SIZE = struct.Struct("<QQ")  # entries, bytes
_PUT = 512  # packs


def read_size(txn: lmdb.Transaction, bin_: int) -> tuple[int, int]:
    """Returns (entries, bytes of values as stored) of a bin, (0, 0) for one that was never written."""
    raw = get_checked(txn, bin_key(SIZE, bin_))
    if raw is None:
        return 0, 0
    entries, size = _SIZE.unpack(raw)
    return entries, size


def write_size(txn: lmdb.Transaction, bin_: int, entries: int, size: int) -> None:
    """Writes what `read_size` returns; raises CorruptStateError where more was taken away than was recorded."""
    if entries < 0 or size < 0:
        raise CorruptStateError(f"Bin {bin_} has lost more entries than it had: its state is damaged.")
    put_checked(txn, bin_key(SIZE, bin_), _SIZE.pack(entries, size))


def check_places(txn: lmdb.Transaction, bins: Iterable[int]) -> None:
    """Raises CorruptStateError when an item beside a place at which items of bins are to come is damaged.

    What is written beside a damaged key stands between it and the items that it hides, and both neighbours of a search
    for one of those are sound then.
    """
    tables = (*STATE_TABLES, SIZE, DROPPED)
    check_absent(txn, [name for bin_ in bins for table in tables if txn.get(name := bin_key(table, bin_)) is None])


def drop_bin(txn: lmdb.Transaction, bin_: int, *, whole: bool = False) -> None:
    """Deletes a bin's state; its queue is left alone.

    Raises CorruptStateError when with `whole` not as many entries as are recorded are found: a damaged key ends the
    search for them, and entries behind it would reappear when the bin returns.
    """
    if whole:
        begin_drop(txn, bin_)
        _drop_items(txn, bin_, sys.maxsize)
        return
    for table in STATE_TABLES:
        drop_range(txn, *bin_range(table, bin_))
    txn.delete(bin_key(SIZE, bin_))
    txn.delete(bin_key(DROPPED, bin_))


def begin_drop(txn: lmdb.Transaction, bin_: int) -> None:
    """Takes a bin's size away and leaves its items to `drop_piece`, in this transaction or later ones.

    Raises CorruptStateError when its size record is damaged.
    """
    if txn.get(name := bin_key(DROPPED, bin_)) is None:
        recorded = read_size(txn, bin_)[0]
        check_ends(txn, *bin_range(OFFSETS, bin_))
        found = packed_entries(txn, bin_) + drop_range(txn, *bin_range(OFFSETS, bin_))  # whoever loads them knows none
        put_checked(txn, name, _SIZE.pack(recorded, found))
        txn.delete(bin_key(SIZE, bin_))


def drop_piece(txn: lmdb.Transaction, items: int = sys.maxsize) -> None:
    """Deletes at most `items` items of bins that `begin_drop` was called for, the lowest bin first.

    Raises CorruptStateError as `drop_bin` does, with the last piece of a bin.
    """
    cursor = txn.cursor()
    while items > 0 and cursor.set_range(DROPPED) and bytes(cursor.key()[:1]) == DROPPED:
        items -= _drop_items(txn, bin_of(bytes(cursor.key())), items)


def _drop_items(txn: lmdb.Transaction, bin_: int, most: int) -> int:
    """Deletes up to so many items of a bin, and its record behind the last; returns how many it deleted."""
    raw, left = get_checked(txn, name := bin_key(DROPPED, bin_)), most
    assert raw is not None, "what stands there by its first byte is the record, or damaged"
    recorded, found = _SIZE.unpack(raw)
    for table in STATE_TABLES:
        check_ends(txn, *bin_range(table, bin_))
        dropped = drop_range(txn, *bin_range(table, bin_), left)
        left, found = left - dropped, found + (0 if table == PACKS else dropped)
        if not left:
            put_checked(txn, name, _SIZE.pack(recorded, found))
            return most
    if found != recorded:
        raise CorruptStateError(f"Bin {bin_} holds {found} entries where {recorded} are recorded.")
    txn.delete(name)
    return most - left


def check_arrived(txn: lmdb.Transaction, bin_: int) -> None:
    """Raises CorruptStateError when the items of a bin that has come do not stand together.

    With every item that comes a search takes another way, and a damaged key that none has met before may mislead it.
    """
    found = packed_entries(txn, bin_)
    for table in STATE_TABLES:
        number = run_length(txn, *bin_range(table, bin_))
        found += number if table != PACKS else 0
    if found != read_size(txn, bin_)[0]:
        raise CorruptStateError(f"Items of bin {bin_} are out of order where they came: the state is damaged.")


class BinArrival:
    """A bin that comes into a transaction in chunks of stored items: put() them in key order, then end().

    Both raise CorruptStateError, put() for an item of another bin or out of order (a copy would put a damaged key where
    it belongs, and a search for the sound one would find nothing amiss beside it), end() for another number of items.
    """

    def __init__(self, txn: lmdb.Transaction, bin_: int):
        self._txn, self._bin = txn, bin_
        self._found, self._last = 0, b""
        drop_bin(txn, bin_)

    def put(self, chunk: Sequence[tuple[Any, Any]]) -> None:
        """Takes items of one table of state, if any."""
        if not chunk:
            return
        names = [self._last, *(bytes(name) for name, _ in chunk)]
        _check_order(names)
        table = names[1][:1]
        if table not in STATE_TABLES or not names[1][:3] == names[-1][:3] == bin_key(table, self._bin):
            raise CorruptStateError(f"Items that came for bin {self._bin} are of another bin or table.")
        put = self._txn.cursor().putmulti(chunk)[0]
        self._found += put if table != PACKS else sum(count_packed(stored) for _, stored in chunk)
        self._last = names[-1]

    def end(self, entries: int, size: int) -> int:
        """Takes the numbers that `read_size` returns at the source, and returns the bytes."""
        if self._found != entries:
            raise CorruptStateError(
                f"Bin {self._bin} holds {self._found} entries where {entries} are recorded: its state is corrupt."
            )
        write_size(self._txn, self._bin, entries, size)
        check_arrived(self._txn, self._bin)
        return size


def copy_bin(source: lmdb.Transaction, target: lmdb.Transaction, bin_: int, leaves: Leaves | None = None) -> int:
    """Copies a bin's state and size record between environments and returns the bytes of its values.

    It is quickest with the pages that the source reads, and from a source that is read without buffers, see
    `Store.reading`.

    Raises CorruptStateError as `BinArrival` and `moving_packs` do.
    """
    arrival, size = BinArrival(target, bin_), read_size(source, bin_)
    packs, packed = moving_packs(source, bin_, size[0], leaves)
    for table in STATE_TABLES:
        if table not in {PACKS, STATE if packed else PACKS}:
            for chunk in chunks(source, *bin_range(table, bin_)):
                arrival.put(chunk)
    for i in range(0, len(packs), _PUT):
        arrival.put(packs[i : i + _PUT])
    return arrival.end(*size)


def stored_items(txn: lmdb.Transaction, bin_: int) -> list[tuple[Any, Any]]:
    """Returns the items of a bin's state in key order, the same whether its entries are in packs or not.

    Raises CorruptStateError when a pack is damaged.
    """
    return [*entries_of(txn, bin_), *other_items(txn, bin_)]


def verify_bin(txn: lmdb.Transaction, bin_: int) -> None:
    """Raises CorruptStateError when a bin's items, read without buffers, do not match their checksums or its size."""
    items = stored_items(txn, bin_)
    names, values = [name for name, _ in items], [value for _, value in items]
    verify_items(names, values)
    found, recorded = (len(items), sum(map(len, values))), read_size(txn, bin_)
    if found != recorded:
        raise CorruptStateError(f"Bin {bin_} holds {found} entries and bytes where {recorded} are recorded.")


def other_items(txn: lmdb.Transaction, bin_: int) -> list[tuple[Any, Any]]:
    """Returns the items of a bin's state that are no entries, in key order."""
    others = [table for table in STATE_TABLES if table not in {STATE, PACKS}]
    return [item for table in others for item in iter_range(txn, *bin_range(table, bin_))]


def size_record(txn: lmdb.Transaction, bin_: int) -> tuple[bytes, bytes]:
    """Returns the size record of a bin as it is stored, or would be for one that was never written."""
    name, value = bin_key(SIZE, bin_), _SIZE.pack(*read_size(txn, bin_))
    return name, checked(name, value)


def open_size(name: bytes, stored: bytes) -> tuple[int, tuple[int, int]]:
    """Returns (bin, what `read_size` returns) of a size record; raises CorruptStateError when it is damaged."""
    value = open_record(name, stored)
    if name[:1] != SIZE or len(name) != len(bin_key(SIZE, 0)) or len(value) != _SIZE.size:
        raise CorruptStateError("A size record is damaged.")
    return bin_of(name), _SIZE.unpack(value)


def _check_order(names: list[bytes]) -> None:
    """Raises CorruptStateError at a name that is not above the one before."""
    if all(map(lt, names, islice(names, 1, None))):
        return
    wrong = next(after for before, after in pairwise(names) if before >= after)
    raise CorruptStateError(f"Items of bin {bin_of(wrong)} are out of order: the state is damaged.")


def verify_items(names: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Raises CorruptStateError when an item of the tables of state, in key order, does not match its checksum."""
    keyed, due = bisect_left(names, DENSE), bisect_left(names, DUE)
    verify_entries([*names[:keyed], *names[due:]], [*values[:keyed], *values[due:]])
    if any(len(block) != BLOCK_BYTES for block in values[keyed:due]):
        raise CorruptStateError("A block of counts has the wrong length: its state is damaged.")
    where = f"bin {bin_of(names[0])}" if names else "no bin"
    open_blocks(b"".join(values[keyed:due]), block_numbers(names[keyed:due]), where)
