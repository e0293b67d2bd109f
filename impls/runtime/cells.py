"""Latency cells: what a worker reports of its records' latencies, quantised and counted."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELL", "make_cells"]

CELL = np.dtype([("interval", "<i8"), ("latency_us", "<u4"), ("count", "<u4"), ("moved", "u1")])


def make_cells(scheduled_us, done_us, moved):
    lat = done_us - scheduled_us
    neg = int((lat < 0).sum())
    out = np.zeros(len(lat), CELL)
    out["interval"], out["latency_us"], out["count"], out["moved"] = scheduled_us // 250000, np.maximum(lat, 0), 1, moved
    return out, neg
