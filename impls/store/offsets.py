"""What bins have applied of the input: for each bin and input partition the next offset, kept with the bin's state.

In real-time mode Spark sends everything since a batch began once more after a failure, in other pieces and perhaps to
other workers. Whoever owns a bin knows from its state which records it has applied already.
"""

from collections.abc import Iterable

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.checked import whole_range
from impls.store.entries import open_value
from impls.store.state import BinState
from impls.store.tables import OFFSETS, bin_range

_NAME_BYTES = 7  # table, bin, partition


class Offsets:
    """The next offsets of a worker's bins in memory, int64 of shape (bins, partitions), 0 where nothing was applied."""

    def __init__(self, bins: int):
        self._next = np.zeros((bins, 0), np.int64)
        self._kept: dict[tuple[int, int], int] = {}

    def load(self, txn: lmdb.Transaction, bins: Iterable[int] | None = None) -> None:
        """Reads what an environment has of bins, of all by default; raises CorruptStateError when it is damaged."""
        if bins is None:
            self._next[:] = 0
            ranges = [(OFFSETS, bytes([OFFSETS[0] + 1]))]
        else:
            chosen = list(bins)
            self._next[chosen] = 0
            ranges = [bin_range(OFFSETS, bin_) for bin_ in chosen]
        for low, high in ranges:
            for name, stored in whole_range(txn, low, high):
                self._read(name, stored)

    def _read(self, name: bytes, stored: bytes) -> None:
        bin_ = int.from_bytes(name[1:3], "big")
        if len(name) != _NAME_BYTES or bin_ >= len(self._next):
            raise CorruptStateError("The name of a next offset is damaged.")
        partition = int.from_bytes(name[3:], "big")
        self._widen(partition)
        self._next[bin_, partition] = int.from_bytes(open_value(name, stored), "big")

    def _widen(self, partition: int) -> None:
        missing = partition + 1 - self._next.shape[1]
        if missing > 0:
            self._next = np.pad(self._next, ((0, 0), (0, missing)))

    def forget(self, bins: Iterable[int]) -> None:
        """Takes bins for such as nothing was applied to: they were dropped."""
        self._next[list(bins)] = 0

    def keep(self, table: pa.Table) -> None:
        """Takes in records that queues hold: they are left out when they come again, see `unqueued`."""
        for bin_, partition, offset in _rows(table) if len(table) else ():
            place = bin_, partition
            self._kept[place] = max(offset + 1, self._kept.get(place, 0))

    def unqueued(self, table: pa.Table) -> pa.Table:
        """Returns records without those that queues hold, or held, from before: these apply them."""
        if not self._kept or not len(table):
            return table
        new = [offset >= self._kept.get((bin_, partition), 0) for bin_, partition, offset in _rows(table)]
        return table.filter(pa.array(new))

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records of bins that are here that were not applied yet."""
        bins, partitions, offsets = _columns(table)
        self._widen(int(partitions.max(initial=-1)))
        new = offsets >= self._next[bins, partitions]
        return table if new.all() else table.filter(pa.array(new))

    def advance(self, table: pa.Table, state: BinState) -> "Advance":
        """Writes the next offsets after records into the state; they hold here once `Advance.hold` is called."""
        bins, partitions, offsets = _columns(table)
        self._widen(int(partitions.max(initial=-1)))
        codes = bins.astype(np.int64) << 32 | partitions
        order = np.lexsort((offsets, codes))
        codes = codes[order]
        last = np.ones(len(codes), bool)
        last[:-1] = codes[1:] != codes[:-1]
        places, after = codes[last], offsets[order][last] + 1
        rows, columns = places >> 32, places & 0xFFFFFFFF
        new = (self._next[rows, columns] == 0).tolist()
        state.put_offsets(rows.tolist(), columns.tolist(), after.tolist(), new=new)
        return Advance(self._next, rows, columns, after)


class Advance:
    """Next offsets that a transaction has written and that hold once it is committed."""

    def __init__(
        self,
        target: NDArray[np.int64],
        bins: NDArray[np.int64],
        partitions: NDArray[np.int64],
        after: NDArray[np.int64],
    ):
        self._target, self._bins, self._partitions, self._after = target, bins, partitions, after

    def hold(self) -> None:
        """Takes the offsets over into the memory that they were computed from."""
        self._target[self._bins, self._partitions] = self._after


def _columns(table: pa.Table) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    return (table.column("bin").to_numpy(), table.column("partition").to_numpy(), table.column("offset").to_numpy())


def _rows(table: pa.Table) -> Iterable[tuple[int, int, int]]:
    return zip(*(column.tolist() for column in _columns(table)), strict=True)
