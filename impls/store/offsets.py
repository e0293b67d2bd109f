"""What bins have applied of the input: for each bin and input partition the last row, kept with the bin's state.

In real-time mode Spark sends everything since a batch began once more after a failure, in other pieces and perhaps to
other workers. Whoever owns a bin knows from its state which rows it has applied already. A row has the offset of its
record, and a number among the record's rows where there can be several (`impls.store.records.ROW`).

Of another query's results bins know in the same way who has sent them up to which number, see `impls.store.numbers`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.checked import whole_range
from impls.store.entries import open_value
from impls.store.records import ROW, has_column
from impls.store.state import BinState
from impls.store.tables import OFFSETS, bin_range

PARTITION_BITS = 20  # of an input partition, which say the partition; those above them say the topic
_NAME_BYTES = 11  # table, bin, input partition
_NOTHING = -1  # before the first offset
WHOLE = (1 << 63) - 1  # the last row of a record that has one row only

Place = tuple[int, int]
"""Offset and row."""


class Applied(Protocol):
    """What a worker's bins have applied. In a transaction begin() comes first, and advance() behind all records."""

    def load(self, txn: lmdb.Transaction, bins: Iterable[int] | None = None) -> None:
        """Takes what an environment has of bins, of all by default, for what they have applied.

        Raises CorruptStateError when it is damaged.
        """

    def forget(self, bins: Iterable[int]) -> None:
        """Takes bins for such as nothing was applied to: they were dropped."""

    def begin(self, txn: lmdb.Transaction) -> None:
        """Begins a transaction: what was applied in one that has failed was not."""

    def unqueued(self, table: pa.Table) -> pa.Table:
        """Returns records without those that queues hold, or held, from before: these apply them."""

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records of bins that are here that were not applied yet."""

    @property
    def moved(self) -> bool:
        """Whether something is to be written although no record is applied."""

    def advance(self, table: pa.Table | None, state: BinState) -> "Advance":
        """Writes into the state what is applied of records; it holds here once `Advance.hold` is called."""


class Advance(Protocol):
    """What a transaction has written, and what holds once it is committed."""

    def hold(self) -> None:
        """Takes it over into the memory that it was computed from."""


class Offsets:
    """The last rows of the input that a worker's bins have applied; int64 of shape (bins, input partitions) each."""

    def __init__(self, bins: int):
        self._offset = np.full((bins, 0), _NOTHING, np.int64)
        self._row = np.zeros((bins, 0), np.int64)
        self._known = np.empty(0, np.int64)  # input partitions, ascending
        self._columns = np.empty(0, np.int64)  # of each of them
        self._kept: dict[tuple[int, int], Place] = {}

    def load(self, txn: lmdb.Transaction, bins: Iterable[int] | None = None) -> None:
        """Reads what an environment has of bins, of all by default.

        Raises CorruptStateError when it is damaged.
        """
        if bins is None:
            self._offset[:] = _NOTHING
            ranges = [(OFFSETS, bytes([OFFSETS[0] + 1]))]
        else:
            chosen = list(bins)
            self._offset[chosen] = _NOTHING
            ranges = [bin_range(OFFSETS, bin_) for bin_ in chosen]
        for low, high in ranges:
            for name, stored in whole_range(txn, low, high):
                self._read(name, stored)

    def _read(self, name: bytes, stored: bytes) -> None:
        bin_ = int.from_bytes(name[1:3], "big")
        if len(name) != _NAME_BYTES or bin_ >= len(self._offset):
            raise CorruptStateError("The name of an applied offset is damaged.")
        (column,) = self._places(np.array([int.from_bytes(name[3:], "big", signed=True)]))
        self._offset[bin_, column], self._row[bin_, column] = place_of(open_value(name, stored))

    def _places(self, partitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the columns of input partitions; those that are new get one."""
        at = np.searchsorted(self._known, partitions)
        if not len(self._known) or (self._known[np.minimum(at, len(self._known) - 1)] != partitions).any():
            self._add(np.setdiff1d(partitions, self._known))
            at = np.searchsorted(self._known, partitions)
        return self._columns[at]

    def _add(self, partitions: NDArray[np.int64]) -> None:
        width = self._offset.shape[1]
        wider = ((0, 0), (0, len(partitions)))
        self._offset = np.pad(self._offset, wider, constant_values=_NOTHING)
        self._row = np.pad(self._row, wider)
        known = np.concatenate([self._known, partitions])
        columns = np.concatenate([self._columns, width + np.arange(len(partitions))])
        order = np.argsort(known)
        self._known, self._columns = known[order], columns[order]

    def behind(self) -> dict[int, int]:
        """Returns by input partition the offset behind the last record that a bin has applied."""
        behind = (self._offset[:, self._columns].max(axis=0) + 1).tolist()
        return {part: at for part, at in zip(self._known.tolist(), behind, strict=True) if at > 0}

    def forget(self, bins: Iterable[int]) -> None:
        """Takes bins for such as nothing was applied to: they were dropped."""
        self._offset[list(bins)] = _NOTHING

    def begin(self, txn: lmdb.Transaction) -> None:
        """Does nothing: what holds has been committed."""

    def keep(self, table: pa.Table) -> None:
        """Takes in records that queues hold: they are left out when they come again, see `unqueued`."""
        for bin_, partition, place in _rows(table) if len(table) else ():
            self._kept[bin_, partition] = max(place, self._kept.get((bin_, partition), place))

    def unqueued(self, table: pa.Table) -> pa.Table:
        """Returns records without those that queues hold, or held, from before: these apply them."""
        if not self._kept or not len(table):
            return table
        new = [place > self._kept.get((bin_, partition), (_NOTHING, 0)) for bin_, partition, place in _rows(table)]
        return table.filter(pa.array(new))

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records of bins that are here that were not applied yet."""
        bins, partitions, offsets, rows = _columns(table)
        columns = self._places(partitions)
        last = self._offset[bins, columns]
        new = offsets > last
        if rows is not None and not new.all():
            new |= (offsets == last) & (rows > self._row[bins, columns])
        return table if new.all() else table.filter(pa.array(new))

    @property
    def moved(self) -> bool:
        """Never: rows come from applied records alone."""
        return False

    def advance(self, table: pa.Table | None, state: BinState) -> "_Rows":
        """Writes the last rows of records into the state; they hold here once `Advance.hold` is called."""
        assert table is not None, "rows come from applied records alone"
        bins, partitions, offsets, rows = _columns(table)
        columns = self._places(partitions)
        rows = np.full(len(bins), WHOLE) if rows is None else rows
        codes = bins.astype(np.int64) << 32 | columns
        order = np.lexsort((rows, offsets, codes))
        codes = codes[order]
        last = np.ones(len(codes), bool)
        last[:-1] = codes[1:] != codes[:-1]
        at = order[last]
        bins_, columns_ = codes[last] >> 32, codes[last] & 0xFFFFFFFF
        places = list(zip(offsets[at].tolist(), rows[at].tolist(), strict=True))
        new = (self._offset[bins_, columns_] == _NOTHING).tolist()
        state.put_offsets(bins_.tolist(), partitions[at].tolist(), places, new=new)
        return _Rows(self, bins_, columns_, offsets[at], rows[at])

    def hold(self, advance: "_Rows") -> None:
        """Takes over what a committed transaction has written."""
        self._offset[advance.bins, advance.columns] = advance.offsets
        self._row[advance.bins, advance.columns] = advance.rows


@dataclass(frozen=True)
class _Rows:
    target: Offsets
    bins: NDArray[np.int64]
    columns: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]

    def hold(self) -> None:
        """Takes them over into the memory that they were computed from."""
        self.target.hold(self)


def place_of(value: bytes) -> Place:
    """Returns what is stored of a place."""
    return int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big")


_Columns = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]


def _columns(table: pa.Table) -> _Columns:
    """Returns bin, input partition, offset and, if a record can have several, the row of records."""
    rows = table.column(ROW).to_numpy() if has_column(table, ROW) else None
    partitions = table.column("partition").to_numpy().astype(np.int64, copy=False)
    return table.column("bin").to_numpy(), partitions, table.column("offset").to_numpy(), rows


def _rows(table: pa.Table) -> Iterable[tuple[int, int, Place]]:
    bins, partitions, offsets, rows = _columns(table)
    rows = np.full(len(bins), WHOLE) if rows is None else rows
    places = zip(offsets.tolist(), rows.tolist(), strict=True)
    return zip(bins.tolist(), partitions.tolist(), places, strict=True)
