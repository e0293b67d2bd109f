"""Latencies of a tick, and their breakdown: how long its records spent in each step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.realtime.blobs import Blob
from impls.store.checked import get_checked, get_of_epoch, put_checked, put_of_epoch
from impls.store.tables import OUTBOX
from impls.worker.cells import CELL, are_moved, make_cells

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


STEPS = ("to_router", "route", "shuffle", "wait", "apply", "commit", "log", "send")
"""From the scheduled time to F, in F, to S, for the turn before, and the phases of the turn."""
_STAMPED = STEPS[1:4]
_PHASES = {"drop": "apply", "pull": "apply", "apply": "apply", "commit": "commit", "log": "log", "send": "send"}


class Breakdown:
    """begin() with the blobs of a turn, done() with its phases; means() at the end of a tick."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(STEPS, 0.0)
        self._records = self._turn = 0

    def begin(self, blobs: Sequence[Blob]) -> None:
        """Takes the stamps of a turn's blobs."""
        now_us, self._turn = time.time_ns() // 1000, 0
        for blob in blobs:
            records = len(blob.table)
            if not records or blob.came_us < 0 or (due_us := _mean(blob.table.column("time"))) is None:
                continue
            stamps = (due_us, blob.came_us, blob.packed_us, blob.read_us, now_us)
            for step, before, after in zip(("to_router", *_STAMPED), stamps, stamps[1:], strict=False):
                self._sums[step] += records * (after - before) / 1e3
            self._turn += records
        self._records += self._turn

    def done(self, ms: Mapping[str, float]) -> None:
        """Takes the milliseconds of the turn's phases: all of its records wait for each."""
        for phase, step in _PHASES.items():
            self._sums[step] += self._turn * ms.get(phase, 0.0)

    def means(self) -> dict[str, float]:
        """Returns milliseconds by step, {} without records."""
        return {step: round(total / self._records, 3) for step, total in self._sums.items()} if self._records else {}


def _mean(times: pa.ChunkedArray) -> float | None:
    return None if times.null_count else float(times.to_numpy().mean())
