"""The generator's own lag: how long after its scheduled time each record was handed to Kafka's client."""

from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

__all__ = ["LagHistogram"]

_HOUR_US = 3_600_000_000
_SUB_BITS = 11  # 2^11 sub-buckets are 3 significant digits
_OCTAVES = 33 - _SUB_BITS  # an hour has 32 bits of microseconds


class LagHistogram:
    """Counts lags of 1 microsecond to 1 hour to 3 significant digits, in the buckets of an HdrHistogram.

    Recording is vectorised; the HdrHistogram itself is filled when percentiles are asked for. Negative lags (the wall
    clock was stepped back) count as 0 and in `early`, those above an hour as an hour and in `refused`.
    """

    def __init__(self, *, keep: bool = False):
        self.early = 0
        self.refused = 0
        self.max_us = 0
        self._counts = np.zeros((_OCTAVES + 1) << _SUB_BITS, np.int64)
        self._kept: list[NDArray[np.int64]] | None = [] if keep else None

    def record(self, lags_us: NDArray[np.int64]) -> None:
        """Counts the lags of some records, in microseconds."""
        if self._kept is not None:
            self._kept.append(lags_us)
        self.early += int((lags_us < 0).sum())
        self.refused += int((lags_us > _HOUR_US).sum())
        self.max_us = max(self.max_us, int(lags_us.max(initial=0)))
        lags = np.clip(lags_us, 0, _HOUR_US)
        shift = np.maximum(np.frexp(lags.astype(np.float64))[1].astype(np.int64) - _SUB_BITS, 0)
        buckets, counts = np.unique((shift << _SUB_BITS) + (lags >> shift), return_counts=True)
        self._counts[buckets] += counts

    def histogram(self) -> HdrHistogram:
        """Returns all lags as an HdrHistogram, in microseconds."""
        out = HdrHistogram(1, _HOUR_US, 3)
        for bucket in np.flatnonzero(self._counts).tolist():
            shift = bucket >> _SUB_BITS
            out.record_value((bucket & ((1 << _SUB_BITS) - 1)) << shift, int(self._counts[bucket]))
        return out

    def summary_ms(self) -> dict[str, float]:
        """Returns p50, p99, p999 and max in milliseconds; all 0 without records."""
        merged = self.histogram()
        points = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
        out = {name: merged.get_value_at_percentile(at) / 1000 for name, at in points.items()}
        return {**out, "max": self.max_us / 1000}

    def save(self, path: Path) -> None:
        """Writes every lag, in the order of sending, as a numpy int64 array; needs `keep=True`."""
        lags = np.concatenate(self._kept) if self._kept else np.empty(0, np.int64)
        temporary = path.with_name(f".{path.name}.part")
        with temporary.open("wb") as file:
            np.save(file, lags)
        temporary.replace(path)
