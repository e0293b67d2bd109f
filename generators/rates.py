"""Schedules: when each record of an open-loop stream is due, independent of the system under test."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from generators.errors import GeneratorError

__all__ = ["ConstantRate", "Schedule", "SteppedRate"]

_SECOND_US = 1_000_000
_MILLI = 1000  # rates are kept in thousandths of a record per second
_RECORD = _MILLI * _SECOND_US  # one record in thousandths of a record per second times microseconds


class Schedule(ABC):
    """times_us(first, count) gives when records are due, records_until(offset_us) how many are; both from the start.

    Record numbers and times count from 0, and times never decrease. Both are pure functions, so that processes which
    share a stream, or go on with one, agree on it.

    Attributes:
        peak: highest rate, in records per second, rounded up.
    """

    peak: int

    @abstractmethod
    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""

    @abstractmethod
    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""


class ConstantRate(Schedule):
    """Record i is due floor(i * 1e6 / rate) microseconds after the start; rate in records per second."""

    def __init__(self, rate: int):
        if rate != int(rate) or rate < 1:
            raise GeneratorError(f"The rate must be a whole number of records per second from 1, not {rate}.")
        self.rate = self.peak = int(rate)

    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""
        seconds, rest = np.divmod(np.arange(first, first + count, dtype=np.int64), self.rate)
        times: NDArray[np.int64] = seconds * _SECOND_US + rest * _SECOND_US // self.rate  # no product overflows
        return times

    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""
        return max(0, -(-(offset_us + 1) * self.rate // _SECOND_US))


class SteppedRate(Schedule):
    """A rate that is constant over pieces of time; the last piece holds on, or all are repeated behind the lead-in.

    With N(t) the integral of the rate, record i is due at floor(t) of the last t with N(t) = i. All is computed in
    integers (rates in thousandths of a record per second, times in microseconds), so it is exact everywhere.

    Args:
        lengths_us: length of each piece, in microseconds; the last one's is of no account unless `repeat`.
        rates: rate of each piece, in records per second, to a thousandth; may be 0, but not without end.
        lead_us, lead_rate: a piece before all others, which is never repeated.
        repeat: begin again with the first piece behind the last one.

    Raises:
        GeneratorError: a rate below 0, a rate of 0 without end, or more than 9e9 records in the pieces.
    """

    def __init__(
        self,
        lengths_us: Sequence[int] | NDArray[np.int64],
        rates: Sequence[float] | NDArray[np.float64],
        *,
        lead_us: int = 0,
        lead_rate: float = 0.0,
        repeat: bool = False,
    ):
        lengths = np.asarray(lengths_us, np.int64)
        self._rates = np.rint(np.asarray(rates, np.float64) * _MILLI).astype(np.int64)
        self._lead_us, self._lead_rate, self._repeat = lead_us, round(lead_rate * _MILLI), repeat
        if self._rates.min() < 0 or self._lead_rate < 0:
            raise GeneratorError("A rate cannot be below 0 records per second.")
        if (self._rates.max() if repeat else self._rates[-1]) == 0:
            raise GeneratorError("The last rate holds on and must be above 0, or a record would never be due.")
        if float(lengths.astype(np.float64) @ self._rates) + float(lead_us) * self._lead_rate > 9e18:
            raise GeneratorError("The schedule holds more than 9e9 records: make it shorter or slower.")
        self._starts = np.concatenate(([0], np.cumsum(lengths)))
        self._done = np.concatenate(([0], np.cumsum(lengths * self._rates)))  # in units of 1e-9 records
        self.peak = -(-max(int(self._rates.max()), self._lead_rate) // _MILLI)

    @property
    def _lead(self) -> int:
        return self._lead_us * self._lead_rate

    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""
        wanted = np.arange(first, first + count, dtype=np.int64) * _RECORD
        behind = self._lead_us + self._times_behind_lead(np.maximum(wanted - self._lead, 0))
        return np.where(wanted < self._lead, wanted // max(self._lead_rate, 1), behind)

    def _times_behind_lead(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        laps = np.zeros_like(wanted)
        if self._repeat:
            laps, wanted = np.divmod(wanted, self._done[-1])
        # a record due between two pieces belongs to the later one, so a piece of rate 0 has no records
        piece = np.searchsorted(self._done[1:-1], wanted, side="right")
        inside = (wanted - self._done[piece]) // self._rates[piece]
        at: NDArray[np.int64] = laps * self._starts[-1] + self._starts[piece] + inside
        return at

    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""
        end = max(0, offset_us + 1)
        done = min(end, self._lead_us) * self._lead_rate + self._done_behind_lead(max(0, end - self._lead_us))
        return -(-done // _RECORD)

    def _done_behind_lead(self, end: int) -> int:
        laps = 0
        if self._repeat:
            laps, end = divmod(end, int(self._starts[-1]))
        piece = int(np.searchsorted(self._starts[1:-1], end, side="right"))
        inside = (end - int(self._starts[piece])) * int(self._rates[piece])
        return laps * int(self._done[-1]) + int(self._done[piece]) + inside
