"""The tables of an environment, and half-open ranges of keys in them, read and deleted in key order.

A key begins with one byte that names its table. Bins are two big-endian bytes, so a bin is one key range in each table.
"""

import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

import lmdb

META = b"\x00"
STATE = b"\x01"
QUEUE = b"\x02"
OUTBOX = b"\x03"
AFTER = OUTBOX + b"after"  # what a worker knows beside its bins, see `impls.worker.state`
SIZE = b"\x04"
DENSE = b"\x05"
DUE = b"\x06"
OFFSETS = b"\x07"  # of a bin and input partition the last row applied, kept in real-time mode
SHAPE = b"\x08"  # of a bin the shape of its state, see `impls.protocol.versions`; none for the first one
PACKS = b"\x09"  # many entries of STATE as one item, see `impls.store.packs`
DROPPED = b"\x0a"  # of a bin that is being dropped piece by piece: entries recorded, entries found so far
STATE_TABLES = (STATE, DENSE, DUE, OFFSETS, SHAPE, PACKS)  # in key order


def bin_key(table: bytes, bin_: int) -> bytes:
    """Returns the prefix of a bin's keys in a table."""
    return table + bin_.to_bytes(2, "big")


def bin_of(name: bytes) -> int:
    """Returns the bin of a key that begins with what `bin_key` gives."""
    return int.from_bytes(name[1:3], "big")


def bin_range(table: bytes, bin_: int) -> tuple[bytes, bytes]:
    """Returns the half-open key range of a bin in a table."""
    return bin_key(table, bin_), bin_key(table, bin_ + 1)


_CHUNKS = (16, 512)  # the first one and the longest: mostly there is nothing, or little


def iter_range(txn: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[tuple[Any, Any]]:
    """Yields (key, value) of the half-open key range, in key order; buffers live as long as the transaction."""
    for chunk in chunks(txn, low, high):
        yield from chunk


def chunks(txn: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[list[tuple[Any, Any]]]:
    """Yields what `iter_range` does, in lists."""
    cursor = txn.cursor()
    if not cursor.set_range(low) or bytes(cursor.key()) >= high:
        return
    items, size = cursor.iternext(), _CHUNKS[0]
    while chunk := list(islice(items, size)):  # asking each key whether it is the last would double the time
        if bytes(chunk[-1][0]) < high:
            yield chunk
            size = min(size * 2, _CHUNKS[1])
            continue
        yield list(takewhile(lambda item: bytes(item[0]) < high, chunk))
        return


def drop_range(txn: lmdb.Transaction, low: bytes, high: bytes, most: int = sys.maxsize) -> int:
    """Deletes the half-open key range, or its first `most` entries, and returns how many it deleted."""
    cursor, dropped = txn.cursor(), 0
    alive = cursor.set_range(low)
    while alive and dropped < most and low <= bytes(cursor.key()) < high:  # behind the last of all: empty
        alive = cursor.delete()
        dropped += 1
    return dropped
