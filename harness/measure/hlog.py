"""Writes histogram logs (hlog V1.3) that the HdrHistogram tools of Java and Python read.

The Python library's own writer drops tags and floors the maximum, so lines are written here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import write_text
from harness.measure.cells import Cells
from harness.measure.hdr import histogram
from harness.measure.windows import TAGS
from impls.worker.cells import INTERVAL_US


@dataclass(frozen=True)
class Entry:
    """One line: a tag, a stretch of wall clock time, and the values and counts of its records."""

    tag: str
    begin_us: int
    end_us: int
    values: NDArray[Any]
    counts: NDArray[Any]


def _groups(
    cells: Cells, tags: NDArray[np.int8], by: NDArray[np.int64]
) -> Iterator[tuple[int, str, NDArray[np.int64]]]:
    """Yields (value of `by`, tag, rows), ascending; the records of moved bins have a tag of their own."""
    if not len(cells):
        return
    keys = (by * len(TAGS) + tags) * 2 + cells.moved
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    for key, rows in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
        yield key // 2 // len(TAGS), TAGS[key // 2 % len(TAGS)] + ("-moved" if key % 2 else ""), rows


def interval_entries(cells: Cells, tags: NDArray[np.int8]) -> Iterator[Entry]:
    """Yields an entry per 250 ms of scheduled time and tag; together they hold every record once."""
    for interval, tag, rows in _groups(cells, tags, cells.interval):
        begin = interval * INTERVAL_US
        yield Entry(tag, begin, begin + INTERVAL_US, cells.latency_us[rows], cells.count[rows])


def epoch_entries(cells: Cells, tags: NDArray[np.int8], epochs: Iterable[dict[str, Any]]) -> Iterator[Entry]:
    """Yields an entry per epoch and tag; together they hold every record once."""
    times = {line["epoch"]: (line["begin_us"], line["end_us"]) for line in epochs}
    for epoch, tag, rows in _groups(cells, tags, cells.epoch):
        done = cells.done_us[rows]
        begin, end = times.get(epoch, (int(done.min()), int(done.max())))
        yield Entry(tag, begin, end, cells.latency_us[rows], cells.count[rows])


def write_hlog(path: Path, entries: Iterable[Entry], *, start_us: int, unit: str = "us", of: str = "latency") -> None:
    """Writes a log whole or not at all; times in it count from the first entry or `start_us`, whichever is earlier.

    Args:
        path: file to write.
        entries: lines; they are written in order of their begin.
        start_us: begin of the load, wall clock.
        unit: of the values, declared in the header; Interval_Max is a thousandth in their column.
        of: what the values are.

    Raises:
        MeasureError: a value is outside the range of the histograms.
    """
    lines = sorted(entries, key=lambda entry: (entry.begin_us, entry.tag))
    base = min([start_us, *(entry.begin_us for entry in lines[:1])])
    write_text(path, "".join([*_header(base, start_us, unit, of), *(_line(entry, base) for entry in lines)]))


def _header(base_us: int, start_us: int, unit: str, of: str) -> list[str]:
    base = f"{base_us / 1e6:.6f} (seconds since epoch)"
    return [
        f"#[Values: {of}, unit {unit}; Interval_Max in 1000 {unit}]\n",
        f"#[LoadBegin: {start_us / 1e6:.6f} (seconds since epoch)]\n",
        "#[Histogram log format version 1.3]\n",
        f"#[StartTime: {base}, {datetime.fromtimestamp(base_us / 1e6, UTC).isoformat()}]\n",
        f"#[BaseTime: {base}]\n",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n',
    ]


def _line(entry: Entry, base_us: int) -> str:
    one = histogram(entry.values, entry.counts)
    begin, length = (entry.begin_us - base_us) / 1e6, (entry.end_us - entry.begin_us) / 1e6
    text = one.encode().decode("ascii")
    return f"Tag={entry.tag},{begin:.6f},{length:.6f},{one.get_max_value() / 1e3:.3f},{text}\n"
