"""The summary of one run: its entry of result.json, and its histogram logs, from the files of its folder."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from generators.clock import ARRIVALS_MS
from harness.experiment.description import fault_of
from harness.files import read_json, write_json
from harness.lab.processes import disturbed
from harness.measure.cpu import machine
from harness.measure.hdr import percentiles, refused, summary_ms
from harness.measure.hlog import epoch_entries, interval_entries, write_hlog
from harness.measure.hosts import hosts_entry
from harness.measure.memory import memory_entries, peaks
from harness.measure.migrations import outcome
from harness.measure.windows import RULE, TAGS, peak_of, recovered_s, settled_s, slow_s
from harness.oracle.verdict import doubted
from harness.results.epochs import breakdown_entries, epochs_entry
from harness.results.place import failure_of
from harness.results.runfiles import RunFiles

ENTRY_FILE = "run-result.json"
_LATE_MS = 40.0  # beyond the time between arrivals
_TAGGED = ("steady", "migrating", "after")


def summarise_run(folder: Path) -> dict[str, Any]:
    """Writes intervals.hlog, epochs.hlog, memory.hlog and run-result.json of a run's folder; returns the entry.

    Raises:
        ValueError: a file of the run is broken; the message names it.
    """
    files = RunFiles(folder)
    entry = run_entry(files)
    if not _beyond_range(files):
        start = files.start_us
        write_hlog(folder / "intervals.hlog", interval_entries(files.cells, files.tags), start_us=start)
        write_hlog(folder / "epochs.hlog", epoch_entries(files.cells, files.tags, files.epochs), start_us=start)
    memory = memory_entries(files.memory, files.epochs)
    write_hlog(folder / "memory.hlog", memory, start_us=files.start_us, unit="KiB", of="resident memory by role")
    write_json(folder / ENTRY_FILE, entry)
    return entry


def run_entry(files: RunFiles) -> dict[str, Any]:
    """Returns a run's entry of result.json; a run that is not valid keeps its figures, marked as withheld."""
    oracle, generator = read_json(files.folder / "oracle.json"), _generator(files)
    verdict, reasons = _verdict(files, oracle, generator)
    warm = files.warm_up.end_us
    return {
        "mechanism": files.run.get("mechanism", "unknown"),
        "mode": files.mode,
        "round": files.run.get("round", 0),
        "folder": f"runs/{files.folder.name}",
        "verdict": verdict,
        "withheld": verdict != "valid",
        "reasons": reasons,
        "load": load_met(generator["lag_ms"], files.load),
        "machine": machine(files.taken),
        "cpu_taken": None if files.taken is None else files.taken.to_json(),
        "cpu_idle": files.cpu_idle,
        **{name: oracle.get(name) for name in ("lost", "doubled", "wrong", "out_of_order")},
        "negative": _negative(files),
        "warmup_s": None if warm is None else (warm - files.start_us) / 1e6,
        "warmup": {"rule": RULE, "reason": files.warm_up.reason},
        "latency_ms": _latency(files),
        "epoch_ms": epochs_entry(files.groups),
        "way": breakdown_entries(files.groups, files.cells),
        "migrations": [_migration(files, number) for number in range(len(files.migrations))],
        "memory_bytes": peaks(files.memory),
        "memory_anon_bytes": peaks(files.memory, "anon"),
        "cache": _cache(files),
        "hosts": hosts_entry(files.epochs, files.events),
        "replicated_bytes": sum(
            int(line.get("replicated_bytes", 0)) for stage in files.stages for line in stage.epochs
        ),
        "lmdb_bytes": sum(stage.lmdb_bytes for stage in files.stages),
        "generator": generator,
        "throughput": _throughput(files),
        "timeline": files.timeline.rows(files.start_us),
    }


def _generator(files: RunFiles) -> dict[str, Any]:
    data, load = read_json(files.folder / "generator.json"), files.load
    lag = data.get("lag_ms") or {}
    records = data["records"] + data.get("already_there", 0) if "records" in data else None  # a resumed one adds to it
    extended_s = load["end_s"] - load["planned_s"] if "planned_s" in load else 0.0
    return {"records": records, "max_lag_ms": lag.get("max"), "lag_ms": lag, "extended_s": extended_s}


def load_met(lag_ms: Mapping[str, float], load: Mapping[str, Any]) -> str:
    """Returns met or late: whether records were sent with the arrivals for which they were due.

    A load whose lag nobody measured is not known to be met.
    """
    return "met" if lag_ms.get("p999", math.inf) <= load.get("arrivals_ms", ARRIVALS_MS) + _LATE_MS else "late"


def _negative(files: RunFiles) -> int:
    return sum(int(line["negative"]) for line in files.epochs)


def _beyond_range(files: RunFiles) -> int:
    return refused(files.cells.latency_us, files.cells.count)


def _verdict(files: RunFiles, oracle: dict[str, Any], generator: dict[str, Any]) -> tuple[str, list[str]]:
    """Returns the verdict and its reasons: the oracle's, made unknown by what spoils the run or its measurement."""
    reasons = [failure] if (failure := failure_of(files.folder)) else []
    if not oracle:
        reasons.append("The output was not checked.")
    if (fault := fault_of(str(files.run.get("mechanism", "")))) and not disturbed(files.folder):
        reasons.append(f"The fault {fault} has not happened.")
    if negative := _negative(files):
        reasons.append(f"{negative} latencies are negative: the clock was stepped, or records were sent ahead of time.")
    if beyond := _beyond_range(files):
        reasons.append(f"{beyond} latencies are above 1 h and fit into no histogram.")
    sent, measured = oracle.get("measured", generator["records"]), files.cells.records
    if sent is not None and sent != measured:
        reasons.append(f"{measured} latencies were measured of {sent} records sent.")
    verdict = str(oracle.get("verdict", "unknown"))
    if (unmet := files.load.get("unmet")) and verdict != "valid":
        reasons.append(f"The load went on for {generator['extended_s']:g} s, which is its limit, and {unmet}.")
    return doubted(verdict, reasons), [*(oracle.get("reasons") or []), *reasons]


def _cache(files: RunFiles) -> dict[str, Any] | None:
    """Returns how many entries of a shared store came from the workers' caches; None if nothing was asked of one."""
    hits, misses = (sum(int(line.get(name, 0)) for line in files.epochs) for name in ("cache_hits", "cache_misses"))
    return {"hits": hits, "misses": misses, "hit_rate": hits / (hits + misses)} if hits + misses else None


def _latency(files: RunFiles) -> dict[str, Any]:
    cells, tags = files.cells, files.tags

    def of(rows: NDArray[np.bool_]) -> dict[str, Any]:
        return summary_ms(cells.latency_us[rows], cells.count[rows])

    by_tag = {name: of(tags == TAGS.index(name)) for name in (*_TAGGED, "warmup")}
    return {**by_tag, "migrating_moved": of((tags == TAGS.index("migrating")) & cells.moved)}


def _migration(files: RunFiles, number: int) -> dict[str, Any]:
    migration = files.migrations[number]
    until = files.migrations[number + 1].begin_us if number + 1 < len(files.migrations) else None
    steady = files.cells.take(files.tags == TAGS.index("steady"))
    p50, most = percentiles(steady.latency_us, steady.count, (50.0, 100.0)).tolist()
    peak = peak_of(files.cells, files.tags, migration)
    what = files.moved(number)
    return {
        "id": migration.id,
        "label": migration.label,
        "begin_s": (migration.begin_us - files.start_us) / 1e6,
        "end_s": None if migration.end_us is None else (migration.end_us - files.start_us) / 1e6,
        "outcome": outcome(migration, what, files.events),
        "bins": what.bins,
        "bytes": what.size,
        "required_bins": migration.moves.get("bins"),
        "required_bytes": migration.moves.get("size"),
        "moved_bins_minimum": migration.moves.get("bins_minimum"),
        "moved_bytes_minimum": migration.moves.get("size_minimum"),
        "epochs": len(migration.epochs),
        "duration_s": what.duration_s,
        "slow_s": slow_s(files.timeline, p50, migration.begin_us, until),
        "settled_s": settled_s(files.timeline, p50, migration.begin_us, until),
        "recovered_s": recovered_s(files.timeline, most, migration.begin_us, until),
        "longest_pull_ms": what.longest_pull_ms,
        "peak_ms": peak.peak_ms,
        "peak_ratio": peak.ratio,
        "peak_window_s": peak.window_s,
        "peak_windows": peak.windows,
    }


def _throughput(files: RunFiles) -> dict[str, Any]:
    """Returns records done per second: over the whole load, and the median and extremes of whole seconds."""
    done = (files.cells.done_us - files.start_us) / 1e6
    seconds = float(done.max(initial=0.0))
    if seconds <= 0:
        return {"records_per_s": None, "per_s": {"min": None, "p50": None, "max": None}}
    counts = np.bincount(np.maximum(done, 0).astype(np.int64), weights=files.cells.count)[: max(int(seconds), 1)]
    found = {"min": counts.min(), "p50": np.median(counts), "max": counts.max()}
    return {
        "records_per_s": files.cells.records / seconds,
        "per_s": {name: float(value) for name, value in found.items()},
    }
