"""What bins have applied of the input: for each bin and input partition the last row, kept with the bin's state.

In real-time mode Spark sends everything since a batch began once more after a failure, in other pieces and perhaps to
other workers. Whoever owns a bin knows from its state which rows it has applied already. A row has the offset of its
record, and a number among the record's rows where there can be several (`impls.store.records.ROW`).

Of another query's results bins know in the same way who has sent them up to which number. A producer stands for an
input partition, the number for the offset, and the offset for the row.
"""

from collections.abc import Iterable

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.checked import whole_range
from impls.store.entries import open_value
from impls.store.records import NUMBER, PRODUCER, ROW
from impls.store.state import BinState
from impls.store.tables import OFFSETS, bin_range

PARTITION_BITS = 20  # of an input partition, which say the partition; those above them say the topic
_NAME_BYTES = 11  # table, bin, input partition
_NOTHING = -1  # before the first offset
WHOLE = (1 << 63) - 1  # the last row of a record that has one row only

Place = tuple[int, int]
"""Offset and row."""


class Applied:
    """The last rows that a worker's bins have applied, in memory; int64 of shape (bins, input partitions) each."""

    def __init__(self, bins: int):
        self._offset = np.full((bins, 0), _NOTHING, np.int64)
        self._row = np.zeros((bins, 0), np.int64)
        self._known = np.empty(0, np.int64)  # input partitions, ascending
        self._columns = np.empty(0, np.int64)  # of each of them

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
        value = open_value(name, stored)
        self._offset[bin_, column] = int.from_bytes(value[:8], "big")
        self._row[bin_, column] = int.from_bytes(value[8:], "big")

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

    def forget(self, bins: Iterable[int]) -> None:
        """Takes bins for such as nothing was applied to: they were dropped."""
        self._offset[list(bins)] = _NOTHING

    def begin(self) -> None:
        """Begins a transaction: what was applied in one that has failed was not."""

    def unqueued(self, table: pa.Table) -> pa.Table:
        """Returns records without those that queues hold, or held, from before: these apply them."""
        return table

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records of bins that are here that were not applied yet."""
        raise NotImplementedError

    def _columns_of(self, table: pa.Table) -> "_Columns":
        """Returns bin, input partition, offset and row of the records that have them."""
        raise NotImplementedError

    def advance(self, table: pa.Table, state: BinState) -> "Advance":
        """Writes the last rows of records into the state; they hold here once `Advance.hold` is called."""
        bins, partitions, offsets, rows = self._columns_of(table)
        columns = self._places(partitions)
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
        return Advance(self, bins_, columns_, offsets[at], rows[at])

    def hold(self, advance: "Advance") -> None:
        """Takes over what a committed transaction has written."""
        self._offset[advance.bins, advance.columns] = advance.offsets
        self._row[advance.bins, advance.columns] = advance.rows


class Offsets(Applied):
    """The last rows of the input, of which one may come a second time."""

    def __init__(self, bins: int):
        super().__init__(bins)
        self._kept: dict[tuple[int, int], Place] = {}

    def keep(self, table: pa.Table) -> None:
        """Takes in records that queues hold: they are left out when they come again, see `unqueued`."""
        for bin_, partition, place in self._rows(table) if len(table) else ():
            self._kept[bin_, partition] = max(place, self._kept.get((bin_, partition), place))

    def unqueued(self, table: pa.Table) -> pa.Table:
        """Returns records without those that queues hold, or held, from before: these apply them."""
        if not self._kept or not len(table):
            return table
        new = [place > self._kept.get((bin_, part), (_NOTHING, 0)) for bin_, part, place in self._rows(table)]
        return table.filter(pa.array(new))

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records of bins that are here that were not applied yet."""
        bins, partitions, offsets, rows = self._columns_of(table)
        columns = self._places(partitions)
        last = self._offset[bins, columns]
        new = offsets > last
        if ROW in table.column_names and not new.all():
            new |= (offsets == last) & (rows > self._row[bins, columns])
        return table if new.all() else table.filter(pa.array(new))

    def _columns_of(self, table: pa.Table) -> "_Columns":
        """Returns bin, input partition, offset and row of all records."""
        bins = table.column("bin").to_numpy()
        rows = table.column(ROW).to_numpy() if ROW in table.column_names else np.full(len(bins), WHOLE)
        partitions = table.column("partition").to_numpy().astype(np.int64, copy=False)
        return bins, partitions, table.column("offset").to_numpy(), rows

    def _rows(self, table: pa.Table) -> Iterable[tuple[int, int, Place]]:
        bins, partitions, offsets, rows = self._columns_of(table)
        places = zip(offsets.tolist(), rows.tolist(), strict=True)
        return zip(bins.tolist(), partitions.tolist(), places, strict=True)


class Numbers(Applied):
    """The last results of other queries, which their workers may have sent a second time.

    A result is one message of its topic; one that comes at another offset with a number at or below that of one before
    it is a repeat. Within a transaction begin() comes first, and then `new` in the order of the records.
    """

    def __init__(self, bins: int):
        super().__init__(bins)
        self._now: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def begin(self) -> None:
        """Begins a transaction: what was applied in one that has failed was not."""
        self._now = None

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records without repeats; what is no result of another query stays."""
        if PRODUCER not in table.column_names:
            return table
        results = np.flatnonzero(_numbers(table, PRODUCER))
        bins, producers, numbers, offsets = self._columns_of(table)
        columns = self._places(producers)
        last_number, last_offset = self._now = self._held()
        order = np.lexsort((columns, bins))  # which leaves those of a bin and a producer in their order
        places, numbers, offsets = (bins[order], columns[order]), numbers[order], offsets[order]
        begins = np.ones(len(order), bool)
        begins[1:] = (places[0][1:] != places[0][:-1]) | (places[1][1:] != places[1][:-1])
        before = np.where(begins, last_number[places], np.roll(numbers, 1))
        at = np.where(begins, last_offset[places], np.roll(offsets, 1))
        if ((numbers > before) | ((numbers == before) & (offsets == at))).all():
            last_number[places], last_offset[places] = numbers, offsets  # of equal places the last one counts
            return table
        kept = np.ones(len(table), bool)
        for row, place, number, offset in zip(order, zip(*places, strict=True), numbers, offsets, strict=True):
            if number > last_number[place] or (number == last_number[place] and offset == last_offset[place]):
                last_number[place], last_offset[place] = number, offset
            else:
                kept[results[row]] = False
        return table.filter(pa.array(kept))

    def _held(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns numbers and offsets as the transaction has them so far, for all producers that are known."""
        if self._now is None:
            return self._offset.copy(), self._row.copy()
        number, offset = self._now
        width = number.shape[1]
        return np.hstack([number, self._offset[:, width:]]), np.hstack([offset, self._row[:, width:]])

    def _columns_of(self, table: pa.Table) -> "_Columns":
        """Returns bin, producer, number and offset of the records that are results."""
        producers = _numbers(table, PRODUCER)
        results = np.flatnonzero(producers)
        bins, offsets = (table.column(name).to_numpy()[results] for name in ("bin", "offset"))
        return bins, producers[results], _numbers(table, NUMBER)[results], offsets


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Returns a column with 0 where there is none, as of records that waited in a queue of an earlier start."""
    if name not in table.column_names:
        return np.zeros(len(table), np.int64)
    column: NDArray[np.int64] = pc.fill_null(table.column(name), 0).to_numpy()
    return column


class Advance:
    """Last rows that a transaction has written and that hold once it is committed."""

    def __init__(
        self,
        target: Applied,
        bins: NDArray[np.int64],
        columns: NDArray[np.int64],
        offsets: NDArray[np.int64],
        rows: NDArray[np.int64],
    ):
        self._target, self.bins, self.columns, self.offsets, self.rows = target, bins, columns, offsets, rows

    def hold(self) -> None:
        """Takes them over into the memory that they were computed from."""
        self._target.hold(self)


_Columns = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
