"""A simulated load whose rate changes with time, on the schedule that the generator follows."""

import numpy as np
from numpy.typing import NDArray

from generators.rates import Schedule
from harness.suites.scale.load import EvenLoad

__all__ = ["ShapedLoad"]


class ShapedLoad(EvenLoad):
    """By a point in time bin b has received `floor(share[b] * records due + phase[b])`."""

    def __init__(self, shares: NDArray[np.float64], schedule: Schedule, seed: int = 1, limit: int | None = None):
        """`limit` is the most records that an epoch takes."""
        super().__init__(shares, seed)
        self._shares, self._schedule, self._limit = shares, schedule, limit

    def due(self, at_ms: float) -> int:
        """Returns how many records of all bins are due before a point in time."""
        return self._schedule.records_until(int(at_ms * 1e3) - 1)

    def cut(self, before_ms: float, now_ms: float) -> float:
        """Returns the time up to which an epoch that begins now takes records, the one before took those before."""
        if self._limit is None or self.due(now_ms) - (first := self.due(before_ms)) <= self._limit:
            return now_ms
        return float(self._schedule.times_us(first + self._limit, 1)[0]) / 1e3

    def until(
        self, at_ms: float | NDArray[np.float64], bins: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.int64]:
        """Returns the records of each bin (or of some) scheduled before a point in time, or each before its own."""
        times, place = np.unique(np.asarray(at_ms, np.float64), return_inverse=True)
        due = np.array([self.due(float(time)) for time in times], np.float64)[place]
        counts: NDArray[np.int64] = (self._shares[bins] * due + self._phase[bins]).astype(np.int64)
        return counts
