"""The state of a worker's bins inside one epoch's transaction, as operators see it."""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.errors import StateError
from impls.runtime.store import SIZE, STATE, bin_key, bin_range

__all__ = ["SLOTS", "BinState", "copy_bin", "drop_range", "iter_range", "read_size"]

SLOTS = 510  # 8-byte counts of a dense block: 4,080 bytes and LMDB's 16-byte header fill one page exactly
_BLOCK_BYTES = SLOTS * 8
_SIZE = struct.Struct("<QQ")  # entries, bytes
_KEY_MAX = 480  # LMDB keys end at 511 bytes


def _stored_key(prefix: bytes, key: bytes) -> bytes:
    if len(key) > _KEY_MAX:
        key = key[: _KEY_MAX - 32] + hashlib.blake2b(key, digest_size=32).digest()
    return prefix + key


def iter_range(txn: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[tuple[memoryview, memoryview]]:
    """Yields (key, value) of the half-open key range, in key order; buffers live as long as the transaction."""
    cursor = txn.cursor()
    if cursor.set_range(low):
        yield from takewhile(lambda item: bytes(item[0]) < high, cursor.iternext())


def drop_range(txn: lmdb.Transaction, low: bytes, high: bytes) -> int:
    """Deletes the half-open key range and returns the number of entries."""
    cursor, dropped = txn.cursor(), 0
    alive = cursor.set_range(low)
    while alive and bytes(cursor.key()) < high:
        alive = cursor.delete()
        dropped += 1
    return dropped


def read_size(txn: lmdb.Transaction, bin_: int) -> tuple[int, int]:
    """Returns (entries, bytes of values) of a bin, (0, 0) for one that was never written."""
    raw = txn.get(bin_key(SIZE, bin_))
    return _SIZE.unpack(bytes(raw)) if raw is not None else (0, 0)


def copy_bin(source: lmdb.Transaction, target: lmdb.Transaction, bin_: int) -> int:
    """Copies a bin's state and size record between environments and returns the bytes of its values.

    Raises StateError when the number of entries found is not the number recorded.
    """
    low, high = bin_range(STATE, bin_)
    drop_range(target, low, high)
    consumed, _ = target.cursor().putmulti(iter_range(source, low, high))
    entries, size = read_size(source, bin_)
    if consumed != entries:
        raise StateError(f"Bin {bin_} holds {consumed} entries where {entries} are recorded: its state is corrupt.")
    target.put(bin_key(SIZE, bin_), _SIZE.pack(entries, size))
    return size


class BinState:
    """Keyed entries and dense counts of the bins that are here; writes become visible to others at commit.

    An entry is (bin, key) -> value, all bytes. A dense bin is an array of 64-bit counts in blocks of 510 slots.

    Attributes:
        bins: the query's number of bins.
    """

    def __init__(self, txn: lmdb.Transaction, bins: int):
        self._txn, self.bins = txn, bins
        self._delta: dict[int, list[int]] = {}

    def get(self, bin_: int, key: bytes) -> bytes | None:
        """Returns one entry's value, None when the key has none."""
        raw = self._txn.get(_stored_key(bin_key(STATE, bin_), key))
        return None if raw is None else bytes(raw)

    def get_many(self, bins: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the values of distinct entries, in the order asked."""
        names = [_stored_key(bin_key(STATE, b), k) for b, k in zip(bins, keys, strict=True)]
        found = {bytes(k): bytes(v) for k, v in self._txn.cursor().getmulti(sorted(names))}
        return [found.get(name) for name in names]

    def put_many(
        self, bins: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes], old: Sequence[bytes | None]
    ) -> None:
        """Writes distinct entries; `old` are the values that `get_many` returned for them."""
        items = []
        for b, key, value, before in zip(bins, keys, values, old, strict=True):
            items.append((_stored_key(bin_key(STATE, b), key), value))
            if before is None or len(before) != len(value):
                self._count(b, before is None, len(value) - len(before or b""))
        items.sort()
        self._txn.cursor().putmulti(items)

    def delete(self, bin_: int, key: bytes) -> None:
        """Deletes an entry; a key without one is left alone."""
        name = _stored_key(bin_key(STATE, bin_), key)
        raw = self._txn.get(name)
        if raw is not None:
            self._count(bin_, -1, -len(raw))
            self._txn.delete(name)

    def add_to_slots(
        self, bins: NDArray[np.int32], slots: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Adds 1 per (bin, slot) pair given and returns (index of one record per distinct pair, count after it).

        Shapes (n,) in, (m,) out with m distinct pairs. Raises StateError for a slot outside the bin.
        """
        block_of = slots // SLOTS
        code = (bins.astype(np.int64) << 40) | (block_of << 10) | (slots - block_of * SLOTS)
        pairs, first, counts = np.unique(code, return_index=True, return_counts=True)
        blocks, row = np.unique(pairs >> 10, return_inverse=True)
        names = [bin_key(STATE, b >> 30) + (b & 0x3FFFFFFF).to_bytes(4, "big") for b in blocks.tolist()]
        found = self._txn.cursor().getmulti(names)
        if len(found) != len(names):
            raise StateError("A record's slot lies outside its dense bin: the bin count or key count does not match.")
        content = np.frombuffer(b"".join(v for _, v in found), "<i8").copy()
        at = row * SLOTS + (pairs & 0x3FF)
        content[at] += counts
        raw = content.tobytes()
        items = [(n, raw[i * _BLOCK_BYTES : (i + 1) * _BLOCK_BYTES]) for i, n in enumerate(names)]
        self._txn.cursor().putmulti(items)
        return first, content[at]

    def create_dense(self, bin_: int, slots: int) -> None:
        """Creates a dense bin of zero counts."""
        blocks, zero = -(-slots // SLOTS), bytes(_BLOCK_BYTES)
        prefix = bin_key(STATE, bin_)
        self._txn.cursor().putmulti((prefix + i.to_bytes(4, "big"), zero) for i in range(blocks))
        self._count(bin_, blocks, blocks * _BLOCK_BYTES)

    def create_entries(self, bin_: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Fills a new bin with entries of ascending keys."""
        prefix, total, size = bin_key(STATE, bin_), 0, 0
        batch = []
        for key, value in entries:
            batch.append((_stored_key(prefix, key), value))
            total, size = total + 1, size + len(value)
        self._txn.cursor().putmulti(batch)
        self._count(bin_, total, size)

    def _count(self, bin_: int, entries: int, size: int) -> None:
        delta = self._delta.setdefault(bin_, [0, 0])
        delta[0] += entries
        delta[1] += size

    def write_sizes(self) -> list[tuple[int, int]]:
        """Writes the size records of bins that grew or shrank and returns their (bin, bytes)."""
        out = []
        for bin_, (entries, size) in sorted(self._delta.items()):
            before = read_size(self._txn, bin_)
            after = (before[0] + entries, before[1] + size)
            self._txn.put(bin_key(SIZE, bin_), _SIZE.pack(*after))
            out.append((bin_, after[1]))
        self._delta.clear()
        return out
