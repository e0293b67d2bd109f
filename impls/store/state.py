"""The state of a worker's bins inside one epoch's transaction, as operators see it."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.bins import read_size, write_size
from impls.store.checked import check_absent, earliest_timers, put_counted, whole_range
from impls.store.entries import (
    BLOCK_BYTES,
    CHECK_BYTES,
    SLOTS,
    Changes,
    block_names,
    codes_of,
    create_blocks,
    open_blocks,
    open_entries,
    open_values,
    place,
    stored_entry,
    stored_name,
    stored_names,
    stored_values,
    with_keys,
    without_keys,
    write_counts,
)
from impls.store.packs import beside_packs, unpack, unpack_range
from impls.store.tables import DUE, OFFSETS, SHAPE, STATE, bin_key, bin_range

_HIGHEST = b"\xff" * 512  # above all keys
_TURNED = 4_096  # entries turned at a time


class BinState:
    """Keyed entries and dense counts of the bins that are here; writes become visible to others at commit.

    An entry is (bin, key) -> value, all bytes. A dense bin is an array of 64-bit counts in blocks of 509 slots. Both
    are stored with checksums, and reading what does not match its checksum raises CorruptStateError.

    Attributes:
        bins: the query's number of bins.
        changes: what was written since this object was made; creating a bin is no change.
        careful: an operator finds all records that it fails on, not the first one only.
    """

    def __init__(self, txn: lmdb.Transaction, bins: int, *, careful: bool = False):
        self._txn, self.bins, self.changes, self.careful = txn, bins, Changes(), careful
        self._delta: dict[int, list[int]] = {}
        self._asked: tuple[list[int], list[bytes], tuple[list[bytes], bool]] = ([], [], ([], False))  # of the last read

    def get(self, bin_: int, key: bytes) -> bytes | None:
        """Returns one entry's value, None when the key has none."""
        return self.get_many([bin_], [key])[0]

    def get_many(self, bins: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the values of distinct entries, in the order asked."""
        names, long = stored_names(bins, keys)
        self._asked = list(bins), list(keys), (names, long)
        values = self._values(names)
        return without_keys(keys, values) if long else values

    def _values(self, names: list[bytes]) -> list[bytes | None]:
        """Returns what is stored under names, in their order."""
        entries = [(bytes(name), bytes(value)) for name, value in self._txn.cursor().getmulti(sorted(names))]
        there = [name for name, _ in entries]
        values = open_values(there, [value for _, value in entries])
        if there == names:
            return list(values)
        by_name = dict(zip(there, values, strict=True))
        missing = [name for name in names if name not in by_name]
        if unpack(self._txn, missing):
            entries = [(bytes(name), bytes(value)) for name, value in self._txn.cursor().getmulti(sorted(missing))]
            there = [name for name, _ in entries]
            by_name |= zip(there, open_values(there, [value for _, value in entries]), strict=True)
            missing = [name for name in missing if name not in by_name]
        check_absent(self._txn, [*missing, *beside_packs(self._txn, missing)])
        return [by_name.get(name) for name in names]

    def put_many(
        self, bins: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes], old: Sequence[bytes | None]
    ) -> None:
        """Writes distinct entries; `old` are the values that `get_many` returned for them."""
        names, long = self._asked[2] if self._asked[:2] == (bins, keys) else stored_names(bins, keys)
        if long:
            values, old = with_keys(keys, values), with_keys(keys, old)
        self._write(sorted(zip(names, stored_values(names, values), strict=True)), old.count(None))
        for bin_, value, before in zip(bins, values, old, strict=True):
            if before is None:
                self._count(bin_, 1, len(value) + CHECK_BYTES)
            elif len(before) != len(value):
                self._count(bin_, 0, len(value) - len(before))

    def _write(self, items: list[tuple[bytes, bytes]], new: int) -> None:
        """Writes entries as they are stored, so many of which are new."""
        put_counted(self._txn, items, new)
        self.changes.names += [name for name, _ in items]
        self.changes.values += [value for _, value in items]

    def delete(self, bin_: int, key: bytes) -> None:
        """Deletes an entry; a key without one is left alone."""
        self._delete(stored_name(bin_key(STATE, bin_), key))

    def _delete(self, name: bytes) -> None:
        raw = self._txn.get(name)
        if raw is None and name[:1] == STATE:
            if unpack(self._txn, [name]):
                raw = self._txn.get(name)
            if raw is None:  # one that damage hides would come back
                check_absent(self._txn, [name, *beside_packs(self._txn, [name])])
        if raw is not None:
            self._count(int.from_bytes(name[1:3], "big"), -1, -len(raw))
            self._txn.delete(name)
            self.changes.names.append(name)
            self.changes.values.append(None)

    def scan(self, bin_: int, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        """Returns (key, value) of a bin's entries with low <= key < high, in key order."""
        prefix = bin_key(STATE, bin_)
        unpack_range(self._txn, prefix + low, prefix + high)
        return open_entries(list(whole_range(self._txn, prefix + low, prefix + high)))

    def first(self, bin_: int, low: bytes, high: bytes) -> bytes | None:
        """Returns the lowest key of a bin's entries with low <= key < high, None when there is none."""
        prefix = bin_key(STATE, bin_)
        bounds = prefix + low, prefix + high
        unpack_range(self._txn, *bounds, first=True)
        for name, stored in whole_range(self._txn, *bounds):
            return open_entries([(name, stored)])[0][0]
        return None

    def bins_with_timers(self, bins: NDArray[np.bool_], until: int) -> list[int]:
        """Returns the bins among those marked, bool of shape (B,), whose earliest timer is at `until` or before."""
        numbers, times = earliest_timers(self._txn)
        due: list[int] = numbers[bins[numbers] & (times <= until)].tolist()
        return due

    def earliest_timer(self, bins: NDArray[np.bool_]) -> int | None:
        """Returns the time of the earliest timer of the bins that are marked, None where they have none."""
        numbers, times = earliest_timers(self._txn)
        return min(times[bins[numbers]].tolist(), default=None)

    def set_earliest_timer(self, bin_: int, at: int | None) -> None:
        """Notes the time of a bin's earliest timer, None when it has none."""
        name = bin_key(DUE, bin_)
        if at is None:
            self._delete(name)
            return
        [stored] = stored_values([name], [at.to_bytes(8, "big", signed=True)])
        before = self._txn.get(name)
        if before is None:
            check_absent(self._txn, [name])
        if before is None or bytes(before) != stored:
            self._count(bin_, before is None, 0 if before is not None else len(stored))
            self._txn.put(name, stored)
            self.changes.names.append(name)
            self.changes.values.append(stored)

    def shape(self, bin_: int) -> int:
        """Returns the shape of a bin's state, 0 for the one that the query began with."""
        raw = self._txn.get(name := bin_key(SHAPE, bin_))
        if raw is None:
            check_absent(self._txn, [name])
            return 0
        return int.from_bytes(open_values([name], [bytes(raw)])[0], "big")

    def turn(self, bin_: int, shape: int, convert: Callable[[bytes, bytes], bytes | None] | None) -> None:
        """Gives a bin's state another shape: by `convert(key, value)` of each entry, None to delete it, or by name."""
        low, high = bin_range(STATE, bin_)
        unpack_range(self._txn, low, low + _HIGHEST)
        while convert is not None and (items := list(islice(whole_range(self._txn, low, high), _TURNED))):
            entries = open_entries(items)
            keys, names = [key for key, _ in entries], [name for name, _ in items]
            old = with_keys(keys, [value for _, value in entries])
            self._put_stored(bin_, names, with_keys(keys, [convert(*entry) for entry in entries]), old)
            low = names[-1] + b"\0"
        if self.shape(bin_) != shape:
            name = bin_key(SHAPE, bin_)
            there = self._txn.get(name) is not None  # also the first shape is noted, where another one was left for it
            self._put_stored(bin_, [name], [shape.to_bytes(4, "big")], [bytes(4) if there else None])

    def _put_stored(
        self, bin_: int, names: Sequence[bytes], new: Sequence[bytes | None], old: Sequence[bytes | None]
    ) -> None:
        """Writes entries of a bin by their stored names."""
        kept = [(name, value) for name, value in zip(names, new, strict=True) if value is not None]
        values = stored_values([name for name, _ in kept], [value for _, value in kept])
        new_ones = sum(after is not None and before is None for after, before in zip(new, old, strict=True))
        self._write(list(zip([name for name, _ in kept], values, strict=True)), new_ones)
        for name, after, before in zip(names, new, old, strict=True):
            if after is None:
                self._delete(name)
            else:
                grown = len(after) - len(before) if before is not None else len(after) + CHECK_BYTES
                self._count(bin_, before is None, grown)

    def put_offsets(
        self, bins: Sequence[int], partitions: Sequence[int], last: Sequence[tuple[int, int]], *, new: Sequence[bool]
    ) -> None:
        """Writes the last (offset, row) of distinct pairs of bin and input partition, see `impls.store.offsets`.

        `new` says which pairs have none yet.
        """
        names = [bin_key(OFFSETS, b) + p.to_bytes(8, "big", signed=True) for b, p in zip(bins, partitions, strict=True)]
        values = stored_values(names, [offset.to_bytes(8, "big") + row.to_bytes(8, "big") for offset, row in last])
        check_absent(self._txn, [name for name, is_new in zip(names, new, strict=True) if is_new])
        self._write(sorted(zip(names, values, strict=True)), new.count(True))
        for bin_, is_new, value in zip(bins, new, values, strict=True):
            if is_new:
                self._count(bin_, 1, len(value))

    def add_to_slots(
        self, bins: NDArray[np.int32], slots: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Adds 1 per (bin, slot) pair given and returns (index of one record per distinct pair, count after it).

        Shapes (n,) in, (m,) out with m distinct pairs. Raises CorruptStateError for a slot outside the bin.
        """
        codes, first, times = np.unique(codes_of(bins, slots), return_index=True, return_counts=True)
        blocks, row, at = place(codes)
        names, words = self._blocks(blocks)
        after = words[row, at].astype(np.int64) + times
        write_counts(words, row, at, after)
        self._put_blocks(names, words)
        self.changes.codes.append(codes)
        self.changes.counts.append(after)
        return first, after

    def _blocks(self, blocks: NDArray[np.int64]) -> tuple[list[bytes], NDArray[np.uint64]]:
        names = block_names(blocks)
        values = [value for _, value in self._txn.cursor().getmulti(names)]
        if len(values) != len(names):
            raise CorruptStateError(
                "A record's slot lies outside its dense bin: the bin count or key count does not match."
            )
        raw = b"".join(values)
        if len(raw) != BLOCK_BYTES * len(names):
            raise CorruptStateError("A block of counts has the wrong length: its state is damaged.")
        return names, open_blocks(raw, blocks, f"bins {int(blocks[0] >> 30)} to {int(blocks[-1] >> 30)}")

    def _put_blocks(self, names: list[bytes], words: NDArray[np.uint64], new: int = 0) -> None:
        raw = words.tobytes()
        items = [(n, raw[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES]) for i, n in enumerate(names)]
        put_counted(self._txn, items, new)

    def create_dense(self, bin_: int, slots: int) -> None:
        """Creates a dense bin of zero counts."""
        blocks = -(-slots // SLOTS)
        numbers = (bin_ << 30) + np.arange(blocks)
        self._put_blocks(block_names(numbers), np.frombuffer(create_blocks(numbers), "<u8"), blocks)
        self._count(bin_, blocks, blocks * BLOCK_BYTES)

    def create_entries(self, bin_: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Fills a new bin with entries of ascending keys."""
        batch = [stored_entry(bin_, *entry) for entry in entries]
        put_counted(self._txn, batch, len(batch))
        self._count(bin_, len(batch), sum(len(value) for _, value in batch))

    def redo(
        self, names: list[bytes], values: list[bytes | None], codes: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> None:
        """Writes changes in stored form, every entry and slot at most once (recovery)."""
        unpack(self._txn, sorted(name for name in names if name[:1] == STATE))
        old = {bytes(name): len(value) for name, value in self._txn.cursor().getmulti(sorted(names))}
        items = []
        for name, value in zip(names, values, strict=True):
            if value is None:
                self._delete(name)
                continue
            items.append((name, value))
            self._count(int.from_bytes(name[1:3], "big"), name not in old, len(value) - old.get(name, 0))
        items.sort()
        put_counted(self._txn, items, sum(name not in old for name, _ in items))
        if len(codes):
            blocks, row, at = place(codes)
            stored, words = self._blocks(blocks)
            write_counts(words, row, at, counts)
            self._put_blocks(stored, words)

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
            write_size(self._txn, bin_, *after)
            out.append((bin_, after[1]))
        self._delta.clear()
        return out
