"""The highest rate that holds: doubled until it does not, then the bracket is halved on a logarithmic scale."""

import math
from dataclasses import dataclass

__all__ = ["Search"]

_ROUND_TO = 500  # records per second


@dataclass
class Search:
    """Asks for one rate after the other, in records per second; `tell` says whether the last one held.

    Attributes:
        rate: the rate to try next, None when the search is over.
        precision: the search ends when the bracket's ends are this factor apart, or less.
        least, most: rates below and above which it does not look.
        low: the highest rate that held, None so far; `high`: the lowest that did not.
    """

    rate: int | None
    precision: float = 1.1
    least: int = 1_000
    most: int = 200_000
    low: int | None = None
    high: int | None = None

    def tell(self, *, holds: bool) -> None:
        """Takes in whether `rate` held and chooses the next one."""
        if self.rate is None:
            raise ValueError("The search is over.")
        if holds:
            self.low = self.rate
        else:
            self.high = self.rate
        self.rate = self._next()

    def _next(self) -> int | None:
        if self.high is None:
            assert self.low is not None
            return None if self.low >= self.most else min(self.low * 2, self.most)
        if self.low is None:
            return None if self.high <= self.least else max(self.high // 2, self.least)
        middle = round(math.sqrt(self.low * self.high) / _ROUND_TO) * _ROUND_TO
        done = self.high / self.low <= self.precision or not self.low < middle < self.high
        return None if done else middle
