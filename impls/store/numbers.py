"""Which results of other queries bins have applied: for each bin and producer the last one, kept with the bin's state.

A worker that is run again sends its results again, with the numbers that they had; those of a producer, a worker in a
partition of its topic, grow. The entries are those of `impls.store.offsets`: a producer, which is below 0, stands in
place of an input partition, the number of its last result in place of the offset, and the offset at which that one came
in place of the row. There may be very many producers, so what is known of one is read when a result of its comes.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.store.checked import check_absent
from impls.store.entries import open_value
from impls.store.offsets import Place, place_of
from impls.store.records import NUMBER, PRODUCER, has_column
from impls.store.state import BinState
from impls.store.tables import OFFSETS, bin_key

_Pair = tuple[int, int]  # bin and producer


class Numbers:
    """A result is one message of its topic; at another offset, a number at or below the last one is a repeat.

    `new` takes the records of a transaction in their order. What an operator fails on has been applied too.
    """

    def __init__(self) -> None:
        self._last: dict[_Pair, Place | None] = {}  # as committed; None where there is nothing
        self._now: dict[_Pair, Place] = {}  # as this transaction has them
        self._txn: lmdb.Transaction | None = None

    def load(self, txn: lmdb.Transaction, bins: Iterable[int] | None = None) -> None:
        """Reads what is there anew, when it is needed."""
        self.forget({bin_ for bin_, _ in self._last} if bins is None else bins)

    def forget(self, bins: Iterable[int]) -> None:
        """Takes bins for such as nothing is known of."""
        gone = set(bins)
        self._last = {pair: last for pair, last in self._last.items() if pair[0] not in gone}
        self._now = {pair: at for pair, at in self._now.items() if pair[0] not in gone}

    def begin(self, txn: lmdb.Transaction) -> None:
        """Begins a transaction: what was applied in one that has failed was not."""
        self._txn, self._now = txn, {}

    def unqueued(self, table: pa.Table) -> pa.Table:
        """Returns all records."""
        return table

    def new(self, table: pa.Table) -> pa.Table:
        """Returns the records without repeats; what is no result of another query stays."""
        if not has_column(table, PRODUCER):
            return table
        producers = _column(table, PRODUCER)
        results = np.flatnonzero(producers)
        bins, offsets = (table.column(name).to_numpy()[results] for name in ("bin", "offset"))
        producers, numbers = producers[results], _column(table, NUMBER)[results]
        order = np.lexsort((producers, bins))  # which leaves those of a bin and a producer in their order
        edges = [0, *(np.flatnonzero(np.diff(bins[order]) | np.diff(producers[order])) + 1).tolist(), len(order)]
        kept = np.ones(len(table), bool)
        for low, high in itertools.pairwise(edges) if len(order) else ():
            rows = order[low:high]
            pair = int(bins[rows[0]]), int(producers[rows[0]])
            kept[results[rows]] = self._take(pair, numbers[rows], offsets[rows])
        return table if kept.all() else table.filter(pa.array(kept))

    def _take(self, pair: _Pair, numbers: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which results of a bin and a producer, in their order, are no repeats, and takes them in."""
        last_number, last_offset = self._known(pair) or (-1, -1)
        before, at = np.append(last_number, numbers[:-1]), np.append(last_offset, offsets[:-1])
        new: NDArray[np.bool_] = (numbers > before) | ((numbers == before) & (offsets == at))
        if not new.all():
            for row, (number, offset) in enumerate(zip(numbers.tolist(), offsets.tolist(), strict=True)):
                new[row] = number > last_number or (number, offset) == (last_number, last_offset)
                if new[row]:
                    last_number, last_offset = number, offset
            self._now[pair] = last_number, last_offset
        else:
            self._now[pair] = int(numbers[-1]), int(offsets[-1])
        return new

    def _known(self, pair: _Pair) -> Place | None:
        return self._now[pair] if pair in self._now else self._stored(pair)

    def _stored(self, pair: _Pair) -> Place | None:
        if pair not in self._last:
            assert self._txn is not None, "begin() comes first"
            name = bin_key(OFFSETS, pair[0]) + pair[1].to_bytes(8, "big", signed=True)
            stored = self._txn.get(name)
            if stored is None:
                check_absent(self._txn, [name])
                self._last[pair] = None
            else:
                self._last[pair] = place_of(open_value(name, bytes(stored)))
        return self._last[pair]

    @property
    def moved(self) -> bool:
        """Whether a result has come, also one that the operator has failed on."""
        return bool(self._moved())

    def _moved(self) -> dict[_Pair, Place]:
        return {pair: at for pair, at in self._now.items() if at != self._last[pair]}

    def advance(self, table: pa.Table | None, state: BinState) -> "_Advance":
        """Writes the last results of the transaction into the state; they hold once `hold` is called."""
        moved = self._moved()
        pairs, new = list(moved), [self._last[pair] is None for pair in moved]
        state.put_offsets([b for b, _ in pairs], [p for _, p in pairs], list(moved.values()), new=new)
        return _Advance(self, moved)

    def hold(self, moved: dict[_Pair, Place]) -> None:
        """Takes over what a committed transaction has written."""
        self._last |= moved


@dataclass(frozen=True)
class _Advance:
    target: Numbers
    moved: dict[_Pair, Place]

    def hold(self) -> None:
        """Takes them over into the memory that they were computed from."""
        self.target.hold(self.moved)


def _column(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Returns a column with 0 for what has none, as records that waited in a queue of an earlier start."""
    column: NDArray[np.int64] = pc.fill_null(table.column(name), 0).to_numpy()
    return column
