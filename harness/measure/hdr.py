"""HdrHistograms of latencies: 1 us to 1 h, 3 digits; the one place that defines these numbers.

Latencies come quantised (see `impls.worker.cells`), so distinct values with their counts are a histogram already;
percentiles are taken from those and equal what the merged HdrHistogram answers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from impls.worker.cells import quantise

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
DIGITS = 3
_POINTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
Values = NDArray[Any]


class MeasureError(Exception):
    """A measurement cannot be represented; the message says which and how many."""


def highest_equivalent(values: Values) -> NDArray[np.int64]:
    """Returns the highest value that a histogram cannot tell from each of `values`."""
    low = quantise(values)
    exponent = np.frexp(low.astype(np.float64))[1].astype(np.int64)
    return low + (np.int64(1) << np.maximum(exponent - 11, 0)) - 1


def aggregate(values: Values, counts: Values) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the distinct values, ascending, and the sum of counts of each: the merge of histograms in this form."""
    distinct, place = np.unique(np.asarray(values, np.int64), return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, place, np.asarray(counts, np.int64))
    return distinct, sums


def refused(values: Values, counts: Values) -> int:
    """Returns how many records lie outside the histograms' range."""
    outside = (np.asarray(values, np.int64) < 0) | (np.asarray(values, np.int64) > HIGHEST_US)
    return int(np.asarray(counts, np.int64)[outside].sum())


def histogram(values: Values, counts: Values) -> HdrHistogram:
    """Returns an HdrHistogram of latencies in microseconds, `counts[i]` of `values[i]`.

    Raises:
        MeasureError: values outside 0..1 h, which the histogram would refuse or misplace; it says how many.
    """
    out = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    rejected = refused(values, counts)
    if not rejected:
        for value, count in zip(*(a.tolist() for a in aggregate(values, counts)), strict=True):
            rejected += 0 if out.record_value(value, count) else count
    if rejected:
        raise MeasureError(f"{rejected} latencies lie outside 0 us to 1 h and fit into no histogram.")
    return out


def merge(histograms: Iterable[HdrHistogram]) -> HdrHistogram:
    """Returns one histogram with the records of all."""
    out = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for one in histograms:
        out.add(one)
    return out


def percentiles(values: Values, counts: Values, points: Sequence[float]) -> NDArray[np.int64]:
    """Returns the latency in us at each percentile, as HdrHistogram defines it; zeros without records.

    That is the highest value equivalent to the one where the running count reaches the percentile's share of all
    records, rounded to the nearest whole record, at least one.
    """
    distinct, sums = aggregate(values, counts)
    if not len(distinct):
        return np.zeros(len(points), np.int64)
    running = np.cumsum(sums)
    wanted = np.maximum([int(min(p, 100.0) * int(running[-1]) / 100 + 0.5) for p in points], 1)
    return highest_equivalent(distinct[np.searchsorted(running, wanted)])


def summary_ms(values: Values, counts: Values) -> dict[str, Any]:
    """Returns count, p50, p90, p99, p999 and max in milliseconds; None in place of each number without records."""
    total = int(np.asarray(counts, np.int64).sum())
    if not total:
        return {"count": 0, **dict.fromkeys((*_POINTS, "max"))}
    at = percentiles(values, counts, [*_POINTS.values(), 100.0]) / 1000
    return {"count": total, **dict(zip((*_POINTS, "max"), at.tolist(), strict=True))}
