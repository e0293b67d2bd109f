"""The epochs of a run: in result.json by phase, and as Parquet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.files import read_json, read_lines
from harness.measure.cells import Cells, breakdown_entry
from harness.measure.hdr import percentiles
from harness.measure.migrations import Migration
from impls.errors import UsageError
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
    """Returns the latency breakdown in each group of epochs; None for a run in micro-batches."""
    if not any("way_ms" in line for lines in groups.values() for line in lines):
        return None
    return {name: breakdown_entry(lines, _mean_ms(lines, cells)) for name, lines in groups.items()}


def _mean_ms(lines: Lines, cells: Cells) -> float | None:
    own = cells.take(np.isin(cells.epoch, [line["epoch"] for line in lines]))
    return float(np.average(own.latency_us, weights=own.count)) / 1e3 if len(own) else None


_ROWS = {"homes": ("worker", "host"), "network": ("source", "target", "bytes", "ms")}  # of mixed types: named here


def _epoch_table(run: Path) -> pa.Table:
    """Returns a run's epoch log: a row per epoch, phases as columns `ms_NAME`; lists and what is missing are null.

    Columns besides those of epochs.jsonl: mechanism, round. Those of a cluster, homes and network, hold structs.
    """
    about = read_json(run / "run.json")
    rows: list[dict[str, Any]] = []
    for line in read_lines(run / "epochs.jsonl"):
        phases = {f"ms_{name}": float(value) for name, value in line["ms"].items()}
        plain = {name: value for name, value in line.items() if name != "ms"}
        for name in _ROWS.keys() & plain.keys():
            plain[name] = [dict(zip(_ROWS[name], row, strict=True)) for row in plain[name]]
        rows.append({"mechanism": about.get("mechanism"), "round": about.get("round"), **plain, **phases})
    return pa.Table.from_pylist(rows)


def export(folder: Path) -> list[Path]:
    """Writes epochs.parquet beside each run's epochs.jsonl of a result and returns the files.

    Raises:
        UsageError: the folder has no run with an epoch log.
    """
    logs = sorted(log for log in folder.glob("**/epochs.jsonl") if log.with_name("run.json").exists())
    if not logs:
        raise UsageError(f"{folder} is no result folder: it has no run with an epoch log.")
    out = []
    for log in logs:
        path, half = log.with_name("epochs.parquet"), log.with_name(".epochs.parquet.part")
        pq.write_table(_epoch_table(log.parent), half)
        half.replace(path)
        out.append(path)
    return out
