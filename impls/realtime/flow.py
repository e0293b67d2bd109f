"""How far routers may be ahead of workers: by as many records as a worker applies in a quarter of a second.

A worker that cannot follow would otherwise get all that comes while it applies what has come before. Each tick would be
longer than the one before by the factor of the overload, and bins leave a worker at the ends of ticks only. Records
that wait before their router take the routing of their time instead. It is the back-pressure by credits of other
engines.
"""

from mmap import mmap
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flow", "Pace"]

AHEAD_S = 0.25
_FIRST, _LEAST, _MOST = 256, 64, 1 << 20  # records
_KEPT = 0.7  # of a rate that falls: one slow turn says little
_SOURCES = 254  # routers beyond them are not counted
_APPLIED, _WINDOW, _SENT = 0, 1, 2  # columns


class Pace:
    """took() with each turn of a worker; how many records it may be given before it has applied them.

    Attributes:
        applied: records of all turns.
        window: records that may be on their way to it.
    """

    def __init__(self) -> None:
        self.applied, self.window = 0, _FIRST
        self._rate = 0.0

    def took(self, records: int, seconds: float) -> None:
        """Takes in a turn, its pulls not counted. A small turn says little, so that a higher rate counts at once."""
        if not records:
            return
        self.applied += records
        rate = records / max(seconds, 1e-6)
        self._rate = max(rate, _KEPT * self._rate + (1 - _KEPT) * rate)
        self.window = int(min(max(AHEAD_S * self._rate, _LEAST), _MOST))


class Flow:
    """What routers and workers of a query on one host share of it: a file of int64, shape (slots, 2 + routers).

    Every cell has one writer: of its row a worker the first two, and of its column a router the others.
    """

    def __init__(self, path: str | Path, slots: int):
        """Opens the file that `create` has made."""
        with Path(path).open("r+b") as file:  # numpy's own memmap takes µs for each look
            self._cells = np.frombuffer(mmap(file.fileno(), 0), np.int64).reshape(slots, _SENT + _SOURCES)

    @classmethod
    def create(cls, path: str | Path, slots: int) -> Self:
        """Makes the file."""
        with Path(path).open("wb") as file:
            file.truncate(slots * (_SENT + _SOURCES) * 8)
        flow = cls(path, slots)
        flow._cells[:, _WINDOW] = _FIRST
        return flow

    def sent(self, source: int, records: NDArray[np.int64]) -> None:
        """Counts records that a router sends to each slot, shape (slots,)."""
        if source < _SOURCES:
            self._cells[:, _SENT + source] += records

    def applied(self, slot: int, records: int, window: int) -> None:
        """Counts records that a worker has applied or queued, and notes how many it may be given."""
        self._cells[slot, _WINDOW] = window
        self._cells[slot, _APPLIED] += records

    def room(self) -> NDArray[np.int64]:
        """Returns how many records each slot may be given now, shape (slots,); none where that is not above 0."""
        ahead = self._cells[:, _SENT:].sum(axis=1) - self._cells[:, _APPLIED]
        room: NDArray[np.int64] = self._cells[:, _WINDOW] - ahead
        return room
