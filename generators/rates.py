"""Schedules: when each record of an open-loop stream is due, whatever the system does."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from generators.errors import GeneratorError

__all__ = ["ConstantRate", "Schedule"]

_SECOND_US = 1_000_000


class Schedule(ABC):
    """times_us(first, count) gives when records are due, records_until(offset_us) how many are; both from the start.

    Record numbers and times count from 0, and times never decrease. Both are pure functions, so that processes which
    share a stream, or go on with one, agree on it.
    """

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
        self.rate = int(rate)

    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""
        return np.arange(first, first + count, dtype=np.int64) * _SECOND_US // self.rate

    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""
        return max(0, -(-(offset_us + 1) * self.rate // _SECOND_US))
