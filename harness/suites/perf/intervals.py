"""The median of ratios, or of rounds, with the interval that holds it with 95 %."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class ConfidenceInterval:
    """Median of ratios with its 95 % interval; `pairs` is their number."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def interval(values: Sequence[float]) -> ConfidenceInterval:
    """Returns the median with the narrowest interval between order statistics that covers it with 95 %.

    With fewer than 6 values no such interval exists, and it is from the smallest to the largest.
    """
    ordered, n = np.sort(values), len(values)
    cut = 0  # values left out at each end
    while cut + 1 <= (n - 1) // 2 and _coverage(n, cut + 1) >= _CONFIDENCE:
        cut += 1
    return ConfidenceInterval(float(np.median(ordered)), float(ordered[cut]), float(ordered[n - 1 - cut]), n)


def quotient(over: Sequence[float], under: Sequence[float]) -> ConfidenceInterval:
    """Returns the ratio of two medians, whose values have no pairs, from the least to the most that it can be.

    Over nothing it is infinite, and that of nothing over nothing 0.
    """
    above, below = interval(over), interval(under)
    ends = ((above.median, below.median), (above.low, below.high), (above.high, below.low))
    median, low, high = (one / other if other else math.inf if one else 0.0 for one, other in ends)
    return ConfidenceInterval(median, low, high, min(above.pairs, below.pairs))


def _coverage(n: int, cut: int) -> float:
    """Returns the probability that the median lies between the order statistics left with `cut` fewer at each end."""
    return float(1 - 2 * sum(math.comb(n, i) for i in range(cut + 1)) / 2**n)
