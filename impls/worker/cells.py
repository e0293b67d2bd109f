"""Latency cells: what a worker reports of its records' latencies, quantised as an HdrHistogram does and counted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

CELL = np.dtype([("interval", "<i8"), ("latency_us", "<u4"), ("count", "<u4"), ("moved", "u1")])
INTERVAL_US = 250_000
_SUB_BITS = 11  # 2^11 sub-buckets are 3 significant digits
_SUB_MASK = (1 << _SUB_BITS) - 1
_LATENCY_MAX_US = (1 << 32) - 1  # what a cell can hold; above the range of the histograms, so that it is noticed there
_INDEX_BITS = 16  # 22 octaves of 2^11 sub-buckets


def _shift(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns how many low bits of each value its bucket ignores."""
    exponent = np.frexp(values.astype(np.float64))[1]
    return np.maximum(exponent.astype(np.int64) - _SUB_BITS, 0)


def quantise(latency_us: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the lowest value that an HdrHistogram of 3 digits from 1 us cannot tell from each latency.

    Values are non-negative microseconds below 2^53.
    """
    values = np.asarray(latency_us).astype(np.int64)
    shift = _shift(values)
    return (values >> shift) << shift


def make_cells(
    scheduled_us: NDArray[np.int64], done_us: int | NDArray[np.int64], moved: NDArray[Any]
) -> tuple[NDArray[np.void], int]:
    """Counts records with the same interval, quantised latency and `moved`; returns (cells, negative latencies).

    A negative latency is counted as 0 as well, so that the cells hold every record; one beyond 2^32 us saturates.

    Args:
        scheduled_us: scheduled time of each record, wall clock microseconds.
        done_us: when the results of each, or of all of them, were acknowledged, on the same clock.
        moved: whether a record's bin is part of the migration under way.
    """
    if not len(scheduled_us):
        return np.empty(0, CELL), 0
    latency = done_us - np.asarray(scheduled_us, np.int64)
    negative = int(np.count_nonzero(latency < 0))
    np.clip(latency, 0, _LATENCY_MAX_US, out=latency)
    interval = np.asarray(scheduled_us, np.int64) // INTERVAL_US
    first = int(interval.min())
    shift = _shift(latency)
    index = (shift << _SUB_BITS) | (latency >> shift)
    keys = ((interval - first) << _INDEX_BITS | index) << 1 | np.asarray(moved, bool)
    keys.sort()
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return _cells(keys[starts], np.diff(starts, append=len(keys)), first), negative


def _cells(keys: NDArray[np.int64], counts: NDArray[np.int64], first: int) -> NDArray[np.void]:
    out = np.empty(len(keys), CELL)
    index = (keys >> 1) & ((1 << _INDEX_BITS) - 1)
    out["interval"] = (keys >> (_INDEX_BITS + 1)) + first
    out["latency_us"] = (index & _SUB_MASK) << (index >> _SUB_BITS)
    out["count"] = counts
    out["moved"] = keys & 1
    return out


def are_moved(table: pa.Table, moving: Sequence[int]) -> NDArray[np.bool_]:
    """Returns which records have a bin of the migration under way, by the column bin."""
    if not moving:
        return np.zeros(len(table), bool)
    moved: NDArray[np.bool_] = np.isin(table.column("bin").to_numpy(), np.array(moving, np.int32))
    return moved


def percentiles_ms(parts: Sequence[NDArray[np.void]]) -> dict[str, float]:
    """Returns p50, p99 and max in milliseconds of the records in latency cells; nothing without records."""
    parts = [cells for cells in parts if len(cells)]
    if not parts:
        return {}
    cells = np.concatenate(parts)
    order = np.argsort(cells["latency_us"])
    values, share = cells["latency_us"][order] / 1e3, np.cumsum(cells["count"][order]) / cells["count"].sum()
    at = np.minimum(np.searchsorted(share, [0.5, 0.99]), len(values) - 1)
    return {"p50": float(values[at[0]]), "p99": float(values[at[1]]), "max": float(values[-1])}
