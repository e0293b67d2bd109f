"""Read-only access to a result folder: result.json and the files of its runs."""

import base64
import json
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from plots.metrics import REAL_TIME, at, marks, titles

CELL = np.dtype([("interval", "<i8"), ("latency_us", "<u4"), ("count", "<u4"), ("moved", "u1")])
_LOWEST_US, _HIGHEST_US, _DIGITS = 1, 3_600_000_000, 3


def _lines(path: Path) -> list[dict[str, Any]]:
    """Reads a file of JSON lines; a last line cut off in the middle is left out, any other bad line raises."""
    if not path.exists():
        return []
    lines, out = path.read_text().split("\n")[:-1], list[dict[str, Any]]()
    for number, line in enumerate(lines, 1):
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} line {number} is not JSON: {error}.") from error
    return out


@dataclass(frozen=True)
class StoredRun:
    """One run: its entry in result.json and the files of its folder, read when asked for."""

    entry: dict[str, Any]
    folder: Path

    @property
    def mechanism(self) -> str:
        """Name of the mechanism."""
        return str(self.entry["mechanism"])

    @property
    def real_time(self) -> bool:
        """Whether Spark ran the query in real time, where epochs are ticks."""
        return self.entry.get("mode") == REAL_TIME

    @property
    def round(self) -> int:
        """Number of the round."""
        return int(self.entry.get("round", 0))

    @property
    def label(self) -> str:
        """Mechanism and round in one word."""
        return f"{self.mechanism} r{self.round}"

    @property
    def verdict(self) -> str:
        """The oracle's verdict: valid, invalid or unknown."""
        return str(self.entry.get("verdict", "unknown"))

    @property
    def load_kept(self) -> str:
        """Whether the load was sent as scheduled: met, late or unknown."""
        return str(self.entry.get("load", "unknown"))

    @property
    def machine(self) -> str:
        """Whether the machine was quiet or busy with other work; unknown where nothing says."""
        return str(self.entry.get("machine", "unknown"))

    @property
    def cell(self) -> dict[str, Any]:
        """What distinguishes a run of a sweep from the sweep's other runs; empty in any other experiment."""
        return dict(self.entry.get("cell") or {})

    def why_withheld(self) -> str:
        """Returns why the run may not be compared with others; empty if it may."""
        return ", ".join([*([] if self.verdict == "valid" else [f"verdict {self.verdict}"]), *marks(self.entry)])

    @cached_property
    def load(self) -> dict[str, Any]:
        """What load.json says; empty if the run did not get that far."""
        path = self.folder / "load.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    @property
    def start_us(self) -> int:
        """Wall clock time of the load's begin in microseconds; every time of a figure counts from it."""
        return int(self.load.get("start_us", 0))

    def seconds(self, at_us: Any) -> Any:
        """Returns seconds since the load's begin."""
        return (np.asarray(at_us, dtype=np.float64) - self.start_us) / 1e6

    @cached_property
    def end_s(self) -> float:
        """Seconds from the load's begin to the end of the last epoch."""
        ends = [row["end_us"] for row in self.epochs if row.get("end_us")]
        return float(self.seconds(max(ends))) if ends else 0.0

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """Lines of the epoch log that belong to the load, in order; the last line of an epoch counts."""
        last = {row["epoch"]: row for row in _lines(self.folder / "epochs.jsonl")}
        return [last[epoch] for epoch in sorted(last) if last[epoch]["end_us"] >= self.start_us]

    @property
    def settled_epochs(self) -> list[dict[str, Any]]:
        """Epochs that began after the warm-up."""
        settled_us = self.start_us + float(self.entry.get("warmup_s") or 0.0) * 1e6
        return [row for row in self.epochs if row["begin_us"] >= settled_us]

    @cached_property
    def memory(self) -> list[dict[str, Any]]:
        """Samples of memory by role, in order of time, from the load's begin."""
        return [row for row in _lines(self.folder / "memory.jsonl") if row["at_us"] >= self.start_us]

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """What happened to the query and when."""
        return _lines(self.folder / "events.jsonl")

    def migrations(self) -> list[tuple[float, float]]:
        """Returns (begin, end) of each migration in seconds; one that never ended lasts to the end of the run."""
        ends = {row.get("id"): row["at_us"] for row in self.events if row["kind"] == "migration_end"}
        begins = {row.get("id"): row["at_us"] for row in reversed(self.events) if row["kind"] == "migration_begin"}
        return sorted(
            (float(self.seconds(at_us)), float(self.seconds(ends[key])) if key in ends else self.end_s)
            for key, at_us in begins.items()
        )

    @cached_property
    def timeline(self) -> dict[str, NDArray[np.float64]]:
        """Columns at_s, records, p50, p99, max (ms) of the 250 ms intervals; an interval without records is absent."""
        rows = sorted(self.entry.get("timeline") or [], key=lambda row: row["at_s"])
        return {
            name: np.array([row[name] for row in rows], dtype=np.float64)
            for name in ("at_s", "records", "p50", "p99", "max")
        }

    @cached_property
    def done(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times in seconds at which a worker had done its share of an epoch, and the records done then."""
        last = {(row["epoch"], row["worker"]): row for row in _lines(self.folder / "cells.jsonl")}
        times = [row["done_us"] for row in last.values()]
        counts = [_cells(row["cells"])["count"].sum() for row in last.values()]
        order = np.argsort(times)
        return self.seconds(times)[order], np.asarray(counts, dtype=np.float64)[order]

    @cached_property
    def histograms(self) -> dict[str, Any]:
        """Merged latency histogram (µs) of each tag of the interval log."""
        merged: dict[str, Any] = defaultdict(lambda: HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS))
        path = self.folder / "intervals.hlog"
        for line in path.read_text().splitlines() if path.exists() else []:
            if line and line[0] not in '#"':
                tag, encoded = _tag_and_histogram(line)
                merged[tag].add(HdrHistogram.decode(encoded))
        return dict(merged)


def _tag_and_histogram(line: str) -> tuple[str, str]:
    fields = line.split(",")
    tag = fields[0].removeprefix("Tag=") if fields[0].startswith("Tag=") else ""
    return tag, fields[-1]


def _cells(text: str) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=CELL)


@dataclass(frozen=True)
class StoredExperiment:
    """A result folder: what result.json says, and its runs."""

    folder: Path
    result: dict[str, Any]
    runs: tuple[StoredRun, ...] = field(default=())

    @property
    def name(self) -> str:
        """The experiment's name, or else that of the folder."""
        return str(self.parameters.get("name") or self.folder.name)

    @property
    def environment(self) -> dict[str, Any]:
        """Where and of what it was measured; empty if nothing says."""
        return self.result.get("environment") or {}

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for; empty if nothing says."""
        return self.result.get("experiment") or {}

    @property
    def commit(self) -> str:
        """The commit that was measured, 12 digits; marked if files were changed, "unknown" if nothing says."""
        here = self.environment
        return str(here.get("commit") or "unknown")[:12] + (" (dirty)" if here.get("dirty") else "")

    def comparable(self) -> list[StoredRun]:
        """Returns the runs that may be compared: verdict valid, load not late and machine not busy."""
        return [run for run in self.ordered() if not run.why_withheld()]

    def withheld(self) -> list[StoredRun]:
        """Returns the other runs."""
        return [run for run in self.ordered() if run.why_withheld()]

    def ordered(self) -> list[StoredRun]:
        """Returns all runs, in order of mechanism, then round."""
        place = {name: number for number, name in enumerate(self.mechanisms())}
        return sorted(self.runs, key=lambda run: (place[run.mechanism], run.round))

    def mechanisms(self) -> list[str]:
        """Returns the names of all mechanisms as their runs have them, in the order of the experiment."""
        modes = self.parameters.get("modes") or []
        asked = [title for name in self.parameters.get("mechanisms") or [] for title in titles(str(name), modes)]
        return list(dict.fromkeys([*asked, *(run.mechanism for run in self.runs)]))

    def rounds_of(self, mechanism: str) -> list[StoredRun]:
        """Returns the comparable runs of a mechanism."""
        return [run for run in self.comparable() if run.mechanism == mechanism]

    @property
    def grid(self) -> dict[str, Any]:
        """What a sweep varies; empty for any other experiment."""
        return dict(self.parameters.get("grid") or {})

    @property
    def is_sweep(self) -> bool:
        """Whether the runs of a mechanism differ in their parameters."""
        return bool(self.grid)

    def cells(self) -> list[dict[str, Any]]:
        """Returns the cells in the order of the grid; those of the runs first where the grid names none."""
        cells = [*(self.grid.get("cells") or []), *(run.cell for run in self.runs)]
        return [cell for number, cell in enumerate(cells) if cell not in cells[:number]]

    def cell_label(self, cell: dict[str, Any]) -> str:
        """Returns a cell in words; axes with one value in the whole grid are left out."""
        varied = [axis for axis in cell if len({str(other.get(axis)) for other in self.cells()}) > 1]
        return ", ".join(_named(axis, [cell[axis]]) for axis in varied)

    def typical(self) -> list[StoredRun]:
        """Returns one comparable run for each mechanism: the middle one by highest latency while migrating."""
        groups = [self.rounds_of(name) for name in self.mechanisms()]
        return [sorted(group, key=_peak)[(len(group) - 1) // 2] for group in groups if group]

    def identity(self) -> str:
        """Returns commit, seed, host and parameters in one line."""
        here, asked = self.environment, self.parameters
        parts = [
            f"{self.folder.name}",
            f"commit {self.commit}",
            f"seed {here.get('seed', asked.get('seed', 'unknown'))}",
        ]
        parts.append(f"host {here.get('host', 'unknown')}, {here.get('cores', '?')} cores")
        what = ("query", "profile") if asked.get("workload") == "nexmark" else ("keys", "distribution")
        known = ("workload", *what, "rate", "workers", "workers_goal", "bins", "migration", "rounds")
        varied = list(self.grid.get("varied") or [])
        hidden = {*varied, *(("distribution",) if "skew" in varied else ())}
        parts += [_named(name, [asked[name]]) for name in known if asked.get(name) is not None and name not in hidden]
        parts += [_named(axis, list(dict.fromkeys(cell[axis] for cell in self.cells()))) for axis in varied]
        versions = here.get("versions") or {}
        parts += [f"{name} {version}" for name, version in versions.items() if name in {"pyspark", "python", "java"}]
        return " · ".join(parts)


def _named(name: str, values: list[Any]) -> str:
    return f"{name} {', '.join(f'{value:,}' if isinstance(value, int) else str(value) for value in values)}"


def _peak(run: StoredRun) -> float:
    peak = at(run.entry, "latency_ms", "migrating", "max")
    return peak if peak is not None else at(run.entry, "latency_ms", "steady", "max") or 0.0


def load(folder: Path) -> StoredExperiment:
    """Reads a result folder; raises ValueError with the file's name if result.json cannot be read."""
    path = folder / "result.json"
    try:
        result = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error
    runs = result.get("runs") or []
    return StoredExperiment(folder, result, tuple(StoredRun(entry, _run_folder(folder, entry)) for entry in runs))


def _run_folder(folder: Path, entry: dict[str, Any]) -> Path:
    name = str(entry.get("folder") or "")
    return folder / name if (folder / name).is_dir() and name else folder / "runs" / name
