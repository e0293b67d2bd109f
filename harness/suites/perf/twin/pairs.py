"""Blocks of epochs in pairs, one of each side: ratios with an interval that asks nothing of their distribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class TurnBlock:
    """What one side did in one block; times per epoch in milliseconds.

    Attributes:
        side: live or twin; `pair`: blocks of one pair follow each other.
        backlog: whether its epochs took a given number of records each off a backlog, instead of what had arrived.
        epochs, records: how many, the block's first epoch left out.
        latency_p50_ms: median latency of their records.
        epoch_ms: mean time from one epoch's end to the next one's.
        step_cpu_ms, plan_cpu_ms, jvm_cpu_ms: processor time of the Python workers, of the driver's Python, of the JVM.
    """

    side: str
    pair: int
    backlog: bool
    epochs: int
    records: int
    latency_p50_ms: float
    epoch_ms: float
    step_cpu_ms: float
    plan_cpu_ms: float
    jvm_cpu_ms: float

    @property
    def cpu_ms(self) -> float:
        """Processor time of step and planning per epoch."""
        return self.step_cpu_ms + self.plan_cpu_ms


@dataclass(frozen=True)
class Interval:
    """Median of ratios with its 95 % interval; `pairs` is their number."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def ratios(blocks: Sequence[TurnBlock], measure: str) -> list[float]:
    """Returns live over twin of a measure for each pair that has both blocks, in order of pairs."""
    by_side = {
        side: {b.pair: float(getattr(b, measure)) for b in blocks if b.side == side} for side in ("live", "twin")
    }
    both = sorted(by_side["live"].keys() & by_side["twin"].keys())
    return [by_side["live"][pair] / by_side["twin"][pair] for pair in both]


def interval(values: Sequence[float]) -> Interval:
    """Returns the median with the narrowest interval between order statistics that covers it with 95 %.

    With fewer than 6 values no such interval exists, and it is from the smallest to the largest.
    """
    ordered, n = np.sort(values), len(values)
    cut = 0  # values left out at each end
    while cut + 1 <= (n - 1) // 2 and _coverage(n, cut + 1) >= _CONFIDENCE:
        cut += 1
    return Interval(float(np.median(ordered)), float(ordered[cut]), float(ordered[n - 1 - cut]), n)


def _coverage(n: int, cut: int) -> float:
    """Returns the probability that the median lies between the order statistics left with `cut` fewer at each end."""
    return float(1 - 2 * sum(comb(n, i) for i in range(cut + 1)) / 2**n)
