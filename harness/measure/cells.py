"""Reads a run's latency cells and epoch log into arrays; and, in real time, how long a record spends in each step.

Every worker tells of an epoch the mean of its records (`impls.realtime.breakdown`), and how many commits it took.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.measure.hdr import highest_equivalent
from impls.protocol.report import Report
from impls.realtime.breakdown import STEPS
from impls.worker.cells import CELL, INTERVAL_US


@dataclass(frozen=True)
class Cells:
    """Columns of equal length: each row is `count` records that do not differ.

    Attributes:
        epoch: the epoch that did them.
        done_us: when their results were acknowledged, wall clock.
        interval: their scheduled time // 250 ms.
        latency_us: quantised latency.
        count: number of records.
        moved: 1 if their bin belongs to the migration under way.
    """

    epoch: NDArray[np.int64]
    done_us: NDArray[np.int64]
    interval: NDArray[np.int64]
    latency_us: NDArray[np.int64]
    count: NDArray[np.int64]
    moved: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.count)

    @property
    def scheduled_us(self) -> NDArray[np.int64]:
        """The earliest time at which they can have been scheduled, exact to 0.1 % of their latency."""
        earliest = self.done_us - highest_equivalent(self.latency_us)
        begin = self.interval * INTERVAL_US
        clipped: NDArray[np.int64] = np.clip(earliest, begin, begin + INTERVAL_US - 1)
        return clipped

    def done_in_time(self) -> "Cells":
        """Returns the same cells, done no later than records that were scheduled at the end of their interval.

        That bounds a time which is known to be too late by as much as an interval is long.
        """
        last = (self.interval + 1) * INTERVAL_US - 1 + highest_equivalent(self.latency_us)
        return replace(self, done_us=np.minimum(self.done_us, last))

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.count.sum())

    def take(self, rows: NDArray[Any]) -> "Cells":
        """Returns the rows that a mask or an index selects."""
        return Cells(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def encode_cells(cells: NDArray[np.void]) -> str:
    """Returns cells as the text that cells.jsonl holds."""
    return base64.b64encode(zlib.compress(cells.tobytes(), 1)).decode()


def _decode(text: str) -> NDArray[np.void]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), CELL)


def read_cells(path: Path) -> Cells:
    """Reads cells.jsonl; of several lines of an epoch's worker the last counts.

    Raises:
        ValueError: a line other than a torn last one cannot be read.
    """
    last = {(line["epoch"], line["worker"]): line for line in read_lines(path)}
    lines = [last[key] for key in sorted(last)]
    try:
        parts = [_decode(line["cells"]) for line in lines]
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{path} holds cells that cannot be decoded: {error}.") from error
    every = np.concatenate(parts) if parts else np.empty(0, CELL)
    sizes = [len(part) for part in parts]
    return Cells(
        epoch=np.repeat(np.array([line["epoch"] for line in lines], np.int64), sizes),
        done_us=np.repeat(np.array([line["done_us"] for line in lines], np.int64), sizes),
        interval=every["interval"].astype(np.int64),
        latency_us=every["latency_us"].astype(np.int64),
        count=every["count"].astype(np.int64),
        moved=every["moved"].astype(bool),
    )


def read_epochs(path: Path) -> list[dict[str, Any]]:
    """Reads epochs.jsonl in order of epoch; of several lines of an epoch the last counts."""
    last = {line["epoch"]: line for line in read_lines(path)}
    return [last[epoch] for epoch in sorted(last)]


Line = Mapping[str, Any]


def commits_of(reports: Sequence[Report]) -> int:
    """Returns the commits that the workers took in an epoch."""
    return sum(report.commits for report in reports)


def breakdown_of(reports: Sequence[Report]) -> dict[str, float]:
    """Returns a record's mean milliseconds in each step in an epoch; a step that no worker tells of is absent.

    Args:
        reports: of the epoch's workers.
    """
    telling = [report for report in reports if report.records and report.breakdown]
    total = sum(report.records for report in telling)
    sums = {name: sum(report.breakdown.get(name, 0.0) * report.records for report in telling) for name in STEPS}
    return {name: round(found / total, 4) for name, found in sums.items()} if total else {}


def pace_ms(line: Line) -> float | None:
    """Returns what tells whether a query is in its steady state: its time, in real time its median latency.

    None for an epoch without records.
    """
    if "latency_ms" in line:
        found = line["latency_ms"]
        return None if found is None else float(found)
    return float(line["ms"]["total"])


def breakdown_entry(lines: Sequence[Line], latency_ms: float | None) -> dict[str, Any] | None:
    """Returns the latency breakdown over some epochs, as result.json has it; None where no epoch tells of it.

    Args:
        lines: of the epoch log.
        latency_ms: mean latency of the records of these epochs, None without records.
    """
    known = [line for line in lines if line.get("way_ms") and line["records"]]
    if not known:
        return None
    weights = np.array([line["records"] for line in known], np.float64)
    parts = {
        name: float(np.average([line["way_ms"].get(name, 0.0) for line in known], weights=weights))
        for name in STEPS
        if any(name in line["way_ms"] for line in known)
    }
    seconds = sum((line["end_us"] - line["begin_us"]) / 1e6 + line["ms"].get("between", 0.0) / 1e3 for line in lines)
    return {
        "mean_ms": parts,
        "latency_ms": latency_ms,
        "share": sum(parts.values()) / latency_ms if latency_ms else None,
        "turns_per_s": sum(int(line.get("turns", 0)) for line in lines) / seconds if seconds else None,
    }
