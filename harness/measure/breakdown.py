"""The latency breakdown in real time: how long a record spends in each step from Kafka to its result's acknowledgement.

Every worker tells of a tick the mean of its records (`impls.realtime.merging`), and how many turns it took.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from impls.protocol.report import Report
from impls.realtime.merging import STEPS

Line = Mapping[str, Any]


def turns_of(reports: Sequence[Report]) -> int:
    """Returns the turns that the workers took in a tick."""
    return sum(report.turns for report in reports)


def breakdown_of(reports: Sequence[Report]) -> dict[str, float]:
    """Returns a record's mean milliseconds in each step in a tick; a step that no worker tells of is absent.

    Args:
        reports: of the tick's workers.
    """
    telling = [report for report in reports if report.records and report.breakdown]
    total = sum(report.records for report in telling)
    sums = {name: sum(report.breakdown.get(name, 0.0) * report.records for report in telling) for name in STEPS}
    return {name: round(found / total, 4) for name, found in sums.items()} if total else {}


def pace_ms(line: Line) -> float | None:
    """Returns what tells whether a query is in its steady state: of an epoch its time, of a tick its median latency.

    None for a tick without records.
    """
    if "latency_ms" in line:
        found = line["latency_ms"]
        return None if found is None else float(found)
    return float(line["ms"]["total"])


def breakdown_entry(lines: Sequence[Line], latency_ms: float | None) -> dict[str, Any] | None:
    """Returns the latency breakdown over some ticks, as result.json has it; None where no tick tells of it.

    Args:
        lines: of the epoch log.
        latency_ms: mean latency of the records of these ticks, None without records.
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
