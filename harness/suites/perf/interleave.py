"""Runs of several variants of an experiment, interleaved on one machine: only ratios of one round are compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.experiment.description import Experiment
from harness.files import read_json
from harness.results.entry import ENTRY_FILE
from harness.results.failure import failure_of, told_failure
from harness.run.lines import Lines
from harness.run.runs import AGAIN, NamedRun, Watcher, begin_anew, busy_runs, run_all
from harness.suites.perf.part import Spread
from harness.suites.runs import place_run
from impls.errors import StateError, UsageError
from plots.metrics import at

__all__ = ["STEADY_MEASURES", "interleave", "migrations", "ratio", "values"]

STEADY_MEASURES = {
    "epoch p50": ("epoch_ms", "steady", "p50"),
    "epoch p99": ("epoch_ms", "steady", "p99"),
    "latency p50": ("latency_ms", "steady", "p50"),
    "latency p99": ("latency_ms", "steady", "p99"),
}


def interleave(
    variants: Mapping[str, Experiment], rounds: int, folder: Path, *, warm: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Runs every variant once a round, in an order drawn from seed 1, and returns their result entries.

    What was finished before in the same folder is not run again. A round during which the machine was busy is, twice at
    most: all of its runs are, as ratios are taken within a round. Raises StateError when a run is not valid, or with
    `warm` when it never warmed up: that one is run again the next time.
    """
    draw = np.random.default_rng(1)
    names = list(variants)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    view = Lines(rounds * len(names))
    for number in range(rounds):
        order = [names[i] for i in draw.permutation(len(names)).tolist()]
        for name, entry in _round(variants, order, number, folder / "runs", view, warm=warm).items():
            found[name].append(entry)
    return found


def _round(
    variants: Mapping[str, Experiment], order: Sequence[str], number: int, folder: Path, view: Watcher, *, warm: bool
) -> dict[str, dict[str, Any]]:
    """Returns the entries of a round by variant; one during which the machine was busy is made anew, up to a limit."""
    runs = {
        name: NamedRun(variants[name], variants[name].mechanisms[0], number, 0, place=f"{number:02d}-{name}")
        for name in order
    }
    for again in range(AGAIN + 1):
        found = {name: _entry_of(run, folder, view, warm=warm) for name, run in runs.items()}
        if again == AGAIN or not busy_runs(list(runs.values()), folder):
            break
        view.note(f"The machine was busy during round {number}: it is run anew, {again + 1} of {AGAIN} times at most.")
        for run in runs.values():
            begin_anew(folder / run.folder)
    return found


def _entry_of(run: NamedRun, folder: Path, view: Watcher, *, warm: bool) -> dict[str, Any]:
    place = folder / run.folder
    place_run(run, folder)
    run_all([run], folder, view)
    if failure_of(place):
        raise UsageError(told_failure(place))
    data = read_json(place / ENTRY_FILE)
    if data["verdict"] != "valid":
        raise StateError(f"The run in {place} is {data['verdict']}: {'; '.join(data['reasons'])}")
    if warm and data["warmup_s"] is None:
        (place / "done").unlink()
        raise StateError(
            f"The run in {place} never warmed up, as on a busy machine: the same command again runs it anew."
        )
    return data


def values(entries: list[dict[str, Any]], *path: str) -> tuple[float, ...]:
    """Returns a value of each entry.

    Raises:
        StateError: a run has no such value, as it never warmed up.
    """

    def value(entry: dict[str, Any]) -> float:
        found = at(entry, *path)
        if not found:
            raise StateError(f"A run has no {' '.join(path)}, as it never warmed up: make the load longer.")
        return float(found)

    return tuple(value(entry) for entry in entries)


def migrations(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the migrations of all entries; raises StateError for one that moved nothing, which has no duration."""
    found = [migration for entry in entries for migration in entry["migrations"]]
    for migration in found:
        if migration["duration_s"] is None:
            raise StateError(f"The migration {migration['label']!r} has no duration. {migration['outcome']}")
    return found


def ratio(over: list[dict[str, Any]], under: list[dict[str, Any]], *path: str) -> Spread:
    """Returns, round by round, a value of one variant's entry over that of the other's; raises as `values` does."""
    return Spread(tuple(a / b for a, b in zip(values(over, *path), values(under, *path), strict=True)))
