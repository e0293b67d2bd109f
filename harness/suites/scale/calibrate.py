"""The simulator's costs from the files of real runs: medians, and least squares where two things add up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from harness.files import read_json, read_lines
from harness.measure.cells import read_epochs
from harness.results.summary import validate
from harness.suites.scale.network import COSTS, Costs
from impls.errors import UsageError

_WORK = ("apply", "commit", "log", "send")
_LINES_MIN = 5


@dataclass(frozen=True)
class MeasuredRun:
    """One valid run of a result folder: its entry of result.json, the parameters and the epoch log."""

    entry: dict[str, Any]
    folder: Path
    parameters: dict[str, Any]
    cores: int
    commit: str

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """Epochs that began after the warm-up, with records."""
        start = int(read_json(self.folder / "load.json").get("start_us", 0))
        settled = start + float(self.entry.get("warmup_s") or self.parameters.get("lead_in_s") or 0.0) * 1e6
        return [e for e in read_epochs(self.folder / "epochs.jsonl") if e["begin_us"] >= settled and e["records"]]

    @property
    def steady(self) -> list[dict[str, Any]]:
        """Epochs before the first migration."""
        first = next((n for n, e in enumerate(self.epochs) if e["migrating"]), len(self.epochs))
        return self.epochs[:first]

    @cached_property
    def plans(self) -> dict[int, dict[str, Any]]:
        """The plan of each epoch."""
        return {line["epoch"]: line for line in read_lines(self.folder / "plan.jsonl")}

    @property
    def stops(self) -> list[int]:
        """Wall clock of the stops that a mechanism asked for: those that an epoch with moves follows."""
        last = max((e["end_us"] for e in self.epochs if e["moved_bins"]), default=0)
        events = read_lines(self.folder / "events.jsonl")
        return [e["at_us"] for e in events if e["kind"] == "query_stop" and e["at_us"] < last]


def read_runs(folders: Iterable[Path], why: str) -> list[MeasuredRun]:
    """Returns the undisturbed valid runs of result folders; raises UsageError, saying `why`, for a folder without."""
    out: list[MeasuredRun] = []
    for folder in folders:
        result = validate(folder)
        runs = [run for run in result["runs"] if run["verdict"] == "valid" and " with " not in run["mechanism"]]
        if not runs:
            raise UsageError(f"{folder} has no valid run to {why}.")
        here = result["environment"]
        cores, commit = int(here["cores"]), str(here.get("commit", "unknown"))
        # the folder by its whole path: its name says where the costs come from
        at = folder.resolve()
        out += [MeasuredRun(run, at / run["folder"], result["experiment"], cores, commit) for run in runs]
    return out


def calibrate(runs: Sequence[MeasuredRun], otherwise: Costs) -> Costs:
    """Returns the costs that the runs show; what they do not show stays as in `otherwise`, and its source says so.

    Runs whose load came late stand behind those whose load was met: they give only what no other run shows.
    """
    costs_found: dict[str, float] = {}
    source: dict[str, str] = {}
    for load in ("late", "met"):
        part = _shown([run for run in runs if run.entry["load"] == load], otherwise)
        late = "" if load == "met" else ", where the load was late"
        source |= {name: f"{_where(runs)}{late}" for name in part}
        costs_found |= part
    if "epoch_ms" not in costs_found:
        raise UsageError("None of the runs has five steady epochs and no cost per record: take another result.")
    every = f"measured in {_where(runs)}"
    single = {name: text for name, text in source.items() if text != _where(runs)}
    unknown = otherwise.source.get("", "of unknown origin")
    single |= {name: otherwise.source.get(name) or unknown for name in COSTS if name not in {*costs_found, "slots"}}
    given: dict[str, Any] = {"slots": runs[0].cores, "source": {"": every, **single}, **costs_found}
    return replace(otherwise, **given)


def _where(runs: Sequence[MeasuredRun]) -> str:
    return ", ".join(sorted({f"{run.folder.parents[1].name} (commit {run.commit[:12]})" for run in runs}))


def _shown(runs: Sequence[MeasuredRun], otherwise: Costs) -> dict[str, float]:
    """Returns the costs that some runs show; those with a cost per record, or hardly a steady epoch, show none."""
    some = [run for run in runs if not run.parameters.get("cost_us") and len(run.steady) >= _LINES_MIN]
    some = [run for run in some if run.entry["latency_ms"]["steady"]["p50"]]
    external = [run for run in some if "external" in run.entry["mechanism"]]
    plain = [run for run in some if run not in external]
    found = _external(external) if external else {}
    return {**found, **_epochs(plain, otherwise), **_pulls(plain), **_stops(plain)} if plain else found


def _epochs(runs: Sequence[MeasuredRun], otherwise: Costs) -> dict[str, float]:
    """Returns what steady epochs say: fixed parts, cost per record, spread, changelog."""
    steady = [e for run in runs for e in run.steady]
    record_us = _record_us(runs)
    workers = float(np.median([run.parameters["workers"] for run in runs]))
    cores = runs[0].cores
    total = [float(np.median([e["ms"]["total"] for e in run.steady])) for run in runs]
    records = [float(np.median([e["records"] for e in run.steady])) for run in runs]
    work = np.array(records) / min(workers, cores) * record_us / 1e3
    p50 = np.array([run.entry["latency_ms"]["steady"]["p50"] for run in runs])
    spread = [_spread(np.array([e["ms"]["total"] for e in run.steady])) for run in runs]
    logged = sum(e.get("log_bytes", 0) for e in steady)
    costs: dict[str, float] = {
        "epoch_ms": max(float(np.median(np.array(total) - work)) - otherwise.worker_ms * workers, 0.0),
        # a record waits for half an epoch at the median, then for the response
        "response_ms": max(float(np.median(p50 - np.array(total) / 2 - work)), 0.0),
        "between_ms": float(np.median([e["ms"].get("between", 0.0) for e in steady])),
        "record_us": record_us,
        "jitter": float(np.median(spread)),
    }
    return {**costs, "log_record_bytes": logged / sum(e["records"] for e in steady)} if logged else costs


def _external(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Returns what a record and the move of a bin cost where the state is external."""
    moves = []
    for run in runs:
        for e in run.epochs:
            if e["moved_bins"]:
                share = _largest_share([pull[2] for pull in run.plans.get(e["epoch"], {}).get("pulls", [])])
                moves.append(e["longest_pull_ms"] / (e["moved_bins"] * share))
    found = {"external_record_us": _record_us(runs)}
    return {**found, "external_bin_ms": float(np.median(moves))} if moves else found


def _record_us(runs: Sequence[MeasuredRun]) -> float:
    """Returns the slope of a worker's working time over its records, for a worker with a core of its own."""
    rows, times = [], []
    for run in runs:
        workers = run.parameters["workers"]
        for e in run.epochs:
            if not e["migrating"]:
                rows.append((1.0, e["records"] / workers * max(1.0, workers / run.cores)))
                times.append(sum(e["ms"].get(phase, 0.0) for phase in _WORK))
    return float(nnls(np.array(rows), np.array(times))[0][1]) * 1e3


def _spread(times: NDArray[np.float64]) -> float:
    """Returns the standard deviation of the logarithm, from the median deviation: a stray epoch does not count."""
    logs = np.log(times)
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def _pulls(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Returns bandwidth and cost per bin of pulls from workers, from the checkpoint, and of replicas."""
    rows: dict[str, list[tuple[float, float, float]]] = {"pull": [], "checkpoint": [], "replica": []}
    for run in runs:
        for e in run.epochs:
            plan = run.plans.get(e["epoch"], {})
            if e["moved_bins"] and not plan.get("from_replica"):
                share = _largest_share([pull[2] for pull in plan.get("pulls", [])])
                kind = "checkpoint" if plan.get("from_checkpoint") else "pull"
                rows[kind].append((e["moved_bins"] * share, e["moved_bytes"] * share, e["longest_pull_ms"]))
            copies = plan.get("replicas") or []
            if copies:
                share = _largest_share([pair[1] for pair in copies])
                size = e.get("replicated_bytes", 0) * share
                rows["replica"].append((len(copies) * share, size, e["ms"].get("replicate", 0.0)))
    costs: dict[str, float] = {}
    for kind, seen in rows.items():
        if len(seen) >= 2:
            bin_ms, byte_ms = _two_parts(np.array(seen))
            costs[f"{kind}_bin_ms"] = bin_ms
            if byte_ms > 0:
                costs[f"{kind}_bytes_s"] = 1e3 / byte_ms
    return costs


def _two_parts(rows: NDArray[np.float64]) -> tuple[float, float]:
    """Returns ms per bin and per byte. Where all bins have one size the two cannot be separated: half and half."""
    bins, size, ms = rows.T
    per_bin = size / np.maximum(bins, 1e-9)
    if per_bin.max() <= 1.5 * max(per_bin.min(), 1e-9) and size.sum():
        each = float((bins * ms).sum() / (bins * bins).sum())
        return each / 2, each / 2 / float(per_bin.mean())
    scale = np.array([max(bins.max(), 1.0), max(size.max(), 1.0)])
    found = nnls(np.stack([bins, size], axis=1) / scale, ms)[0] / scale
    return float(found[0]), float(found[1])


def _largest_share(workers: Sequence[int]) -> float:
    """Returns the part of all pulls that the worker with most of them makes."""
    return float(np.bincount(np.array(workers, np.int64)).max() / len(workers)) if len(workers) else 1.0


def _stops(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Returns how long stops lasted, the slower first epoch behind them included."""
    seconds: dict[str, list[float]] = {"query_s": [], "application_s": []}
    for run in runs:
        usual = float(np.median([e["ms"]["total"] - e["ms"].get("between", 0.0) for e in run.steady]))
        name = "application_s" if "application" in run.entry["mechanism"] else "query_s"
        for at_us in run.stops:
            after = next(e for e in run.epochs if e["begin_us"] > at_us)
            lost = (after["end_us"] - at_us) / 1e3 - usual - after["longest_pull_ms"]
            seconds[name].append(max(lost, 0.0) / 1e3)
    return {name: float(np.median(values)) for name, values in seconds.items() if values}
