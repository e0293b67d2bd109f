"""Latencies of records that arrive evenly: each segment is so many records spread evenly between two latencies."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Histogram", "Segments"]

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
