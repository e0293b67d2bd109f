"""The epochs of a run, in real time its ticks, in result.json: their times by phase, and the latency breakdown."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.measure.breakdown import breakdown_entry
from harness.measure.cells import Cells
from harness.measure.hdr import percentiles
from harness.measure.migrations import Migration
from impls.protocol.report import PARTS
from impls.protocol.report import PHASES as WORKER_PHASES

_PHASES = ("between", "plan", "build", "job", "observe", *WORKER_PHASES, *PARTS)
_TAGGED = ("steady", "migrating", "after")
Lines = list[dict[str, Any]]


def groups_of(epochs: Lines, migrations: Sequence[Migration], warm_us: int | None) -> dict[str, Lines]:
    """Returns the epochs of a run by what they are: steady, migrating or after; warm-up is left out.

    Args:
        epochs: the epoch log; migrating ones are those that belong to a migration.
        migrations: those of the run, in order.
        warm_us: when warm-up ended; None if it never did.
    """
    moving = {n for migration in migrations for n in migration.epochs}
    first = migrations[0].begin_us if migrations else None
    groups: dict[str, Lines] = {name: [] for name in _TAGGED}
    for line in epochs:
        if line["migrating"] or line["epoch"] in moving:
            groups["migrating"].append(line)
        elif first is not None and line["end_us"] > first:
            groups["after"].append(line)
        elif warm_us is not None and line["begin_us"] >= warm_us:
            groups["steady"].append(line)
    return groups


def epochs_entry(groups: dict[str, Lines]) -> dict[str, Any]:
    """Returns p50, p99 and max of each group's epochs in ms, whole and by phase."""
    return {
        name: {**_times(lines, "total"), "phases": {phase: _times(lines, phase) for phase in _PHASES}}
        for name, lines in groups.items()
    }


def _times(lines: Lines, name: str) -> dict[str, Any]:
    if not lines:
        return {"count": 0, **dict.fromkeys(("p50", "p99", "max"))}
    values = np.array([round(line["ms"].get(name, 0.0) * 1e3) for line in lines], np.int64)
    found = percentiles(values, np.ones(len(values), np.int64), (50.0, 99.0, 100.0)) / 1e3
    return {"count": len(lines), **dict(zip(("p50", "p99", "max"), found.tolist(), strict=True))}


def breakdown_entries(groups: dict[str, Lines], cells: Cells) -> dict[str, Any] | None:
    """Returns the latency breakdown in each group of ticks; None for a run in micro-batches."""
    if not any("way_ms" in line for lines in groups.values() for line in lines):
        return None
    return {name: breakdown_entry(lines, _mean_ms(lines, cells)) for name, lines in groups.items()}


def _mean_ms(lines: Lines, cells: Cells) -> float | None:
    own = cells.take(np.isin(cells.epoch, [line["epoch"] for line in lines]))
    return float(np.average(own.latency_us, weights=own.count)) / 1e3 if len(own) else None
