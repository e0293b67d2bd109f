"""The simulated load, with no random draw per record: how many records of each bin have come, and their latencies."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from generators.rates import Schedule

_TOP_RANKS = 1 << 20


class EvenLoad:
    """Records arrive evenly: bin b has received `floor(rate[b] * seconds + phase[b])` by a point in time.

    A seeded phase keeps bins from ticking together; counts are whole and add up however time is cut into epochs.
    """

    def __init__(self, rates: NDArray[np.float64], seed: int = 1):
        self.rates = rates
        self._per_ms = rates / 1e3
        self._phase = np.random.default_rng(seed).random(len(rates))

    def cut(self, before_ms: float, now_ms: float) -> float:
        """Returns the time up to which an epoch that begins now takes records, the one before took those before."""
        return now_ms

    def until(
        self, at_ms: float | NDArray[np.float64], bins: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.int64]:
        """Returns the records of each bin (or of some) scheduled before a point in time, or each before one of its own.

        The shape is (B,), or that of bins.
        """
        counts: NDArray[np.int64] = (self._per_ms[bins] * at_ms + self._phase[bins]).astype(np.int64)
        return counts


def zipf_bins(bins: int, keys: int, exponent: float, seed: int = 1) -> NDArray[np.float64]:
    """Returns each bin's share of the records when keys follow a Zipf law and lie in bins at random; 0 is uniform.

    The hottest 2^20 keys are placed one by one; all others, each of little weight, count evenly.
    """
    if exponent == 0:
        return np.full(bins, 1 / bins)
    top = min(keys, _TOP_RANKS)
    weights = np.arange(1, top + 1, dtype=np.float64) ** -exponent
    place = np.random.default_rng(seed).integers(0, bins, top)
    rest = _integral(top + 0.5, keys + 0.5, exponent)
    shares = np.bincount(place, weights=weights, minlength=bins) + rest / bins
    return np.asarray(shares / shares.sum(), np.float64)


def _integral(low: float, high: float, exponent: float) -> float:
    """Returns the integral of r^-exponent, which is the weight of the ranks between to far below a percent."""
    if high <= low:
        return 0.0
    if abs(exponent - 1) < 1e-9:
        return float(np.log(high / low))
    power = 1 - exponent
    return float((high**power - low**power) / power)


_STEP_MS = 0.1
_EDGES = np.concatenate(([0.0], np.geomspace(1.0, 1e9, 9 * 200 + 1)))


@dataclass(frozen=True)
class Segments:
    """Columns of equal length: `count` records whose latencies lie evenly from `low` to `high` milliseconds."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.int64]

    @property
    def max(self) -> float:
        """The highest latency, 0 for no record."""
        return float(self.high.max(initial=0.0))


class Histogram:
    """Weighted latencies on a fixed logarithmic grid (1.2 % wide); the highest one is exact."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(_EDGES) - 1)
        self.max_ms = 0.0

    def add(self, segments: Segments) -> None:
        """Adds the records of segments."""
        if not len(segments.count):
            return
        self.max_ms = max(self.max_ms, segments.max)
        width = np.maximum(segments.high - segments.low, _STEP_MS)
        rise = segments.count / width
        at = np.concatenate([segments.low, segments.low + width])
        first = max(int(np.searchsorted(_EDGES, at.min(), "right")) - 1, 0)
        last = min(int(np.searchsorted(_EDGES, at.max(), "right")) + 1, len(_EDGES))
        edges = _EDGES[first:last]
        # the number below an edge is a sum of ramps: each begins to rise at its low end and stops at its high end
        place, bend = np.searchsorted(edges, at), np.concatenate([rise, -rise])
        slope = np.cumsum(np.bincount(place, weights=bend, minlength=len(edges))[: len(edges)])
        offset = np.cumsum(np.bincount(place, weights=bend * at, minlength=len(edges))[: len(edges)])
        self.counts[first : last - 1] += np.diff(edges * slope - offset)

    def percentile(self, share: float) -> float:
        """Returns the latency in ms below which a share (0..1) of the records lies, 0 without records."""
        total = self.counts.sum()
        if not total:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.counts), share * total))
        return float(min(_EDGES[min(place + 1, len(_EDGES) - 1)], self.max_ms))


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
