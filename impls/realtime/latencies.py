"""Latencies of a tick that outlive the task that measured them: the driver hears of them when the tick ends."""

import time
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.store.checked import get_checked, get_of_epoch, put_checked, put_of_epoch
from impls.store.tables import OUTBOX
from impls.worker.cells import CELL, are_moved, make_cells

__all__ = ["Latencies", "ended_cells"]

_NOW, _ENDED = OUTBOX + b"cells", OUTBOX + b"ended-cells"
_WHEN = np.dtype([("time", "<i8"), ("moved", "u1")])


@dataclass
class Latencies:
    """Cells of a tick so far, dtype CELL, and records of the last turn whose results are not known to have arrived.

    Attributes:
        cells: of the turns before.
        sent: scheduled time and `moved` of each record of the last turn.
    """

    cells: list[NDArray[np.void]]
    sent: NDArray[np.void]

    @classmethod
    def none(cls) -> "Latencies":
        """Returns those of a tick that begins."""
        return cls([], np.empty(0, _WHEN))

    @classmethod
    def read(cls, txn: lmdb.Transaction) -> "Latencies":
        """Returns what `write` stored with the last turn, its records counted as of now: their results have come."""
        raw = get_checked(txn, _NOW) or bytes(8)
        size = int.from_bytes(raw[:8], "little") * _WHEN.itemsize
        found = cls([np.frombuffer(raw[8 + size :], CELL)], np.frombuffer(raw[8 : 8 + size], _WHEN))
        found.arrived()
        return found

    def turn(self, records: pa.Table | None, moving: tuple[int, ...]) -> None:
        """Takes the records of a turn, whose results are to be sent."""
        if records is None or not len(records) or records.column("time").null_count:
            self.sent = np.empty(0, _WHEN)
            return
        self.sent = np.zeros(len(records), _WHEN)
        self.sent["time"] = records.column("time").to_numpy()
        self.sent["moved"] = are_moved(records, moving)

    def arrived(self) -> int:
        """Counts the last turn's records, whose results have been acknowledged; returns latencies below 0."""
        cells, negative = make_cells(self.sent["time"], time.time_ns() // 1000, self.sent["moved"])
        self.cells.append(cells)
        self.sent = np.empty(0, _WHEN)
        return negative

    def write(self, txn: lmdb.Transaction) -> None:
        """Stores them with a turn."""
        put_checked(txn, _NOW, b"".join((len(self.sent).to_bytes(8, "little"), self.sent.tobytes(), self.to_bytes())))

    def end(self, txn: lmdb.Transaction, tick: int) -> None:
        """Stores them with the turn that ends a tick."""
        put_of_epoch(txn, _ENDED, tick, self.to_bytes())
        put_checked(txn, _NOW, bytes(8))

    def to_bytes(self) -> bytes:
        """Returns the cells."""
        return b"".join(cells.tobytes() for cells in self.cells)


def ended_cells(txn: lmdb.Transaction, tick: int) -> bytes:
    """Returns the cells with which a tick ended, none if another one has ended since."""
    return get_of_epoch(txn, _ENDED, tick) or b""
