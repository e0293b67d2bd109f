"""Runs of several variants of an experiment, interleaved on one machine: only ratios of one round are compared."""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.experiment import Experiment, Run
from harness.files import write_json
from harness.results.entry import ENTRY_FILE
from harness.run.child import RunProcess
from impls.errors import StateError, UsageError

__all__ = ["Ratio", "interleave", "ratio"]


@dataclass(frozen=True)
class Ratio:
    """A measure of one variant over that of another: one value per round, their median and range."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over rounds."""
        return float(np.median(self.values))

    def __str__(self) -> str:
        return f"{self.median:.3f} ({min(self.values):.3f} to {max(self.values):.3f}, {len(self.values)} rounds)"


def interleave(
    variants: Mapping[str, Experiment], rounds: int, folder: Path, *, seed: int = 1
) -> dict[str, list[dict[str, Any]]]:
    """Carries out every variant once a round, in an order drawn from the seed, and returns their result entries.

    What was finished before in the same folder is not run again. Raises StateError when a run is not valid.
    """
    draw = np.random.default_rng(seed)
    names = list(variants)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        for i in draw.permutation(len(names)).tolist():
            name = names[i]
            place = folder / "runs" / f"{number:02d}-{name}"
            found[name].append(_carry_out(variants[name], number, place))
            sys.stderr.write(f"round {number + 1}/{rounds}: {name} done\n")
    return found


def _carry_out(experiment: Experiment, number: int, place: Path) -> dict[str, Any]:
    (mechanism,) = experiment.mechanisms
    run = Run(experiment, mechanism, number, 0)
    entry = place / ENTRY_FILE
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        write_json(place / "run.json", run.to_json())
        _run(place)
    data: dict[str, Any] = json.loads(entry.read_text())
    if data["verdict"] != "valid":
        raise StateError(f"The run in {place} is {data['verdict']}: {'; '.join(data['reasons'])}")
    return data


def _run(place: Path) -> None:
    process, error = RunProcess(place), ""
    try:
        process.go()
        for line in process.lines():
            error = line.get("error", error)
        code = process.wait()
    finally:
        process.end()
    if code:
        raise UsageError(error or f"The run ended with exit code {code}; its log is {place / 'run.log'}.")


def ratio(over: list[dict[str, Any]], under: list[dict[str, Any]], *path: str) -> Ratio:
    """Returns, round by round, a value of one variant's entry over that of the other's."""

    def value(entry: dict[str, Any]) -> float:
        found: Any = entry
        for name in path:
            found = found[name]
        return float(found)

    return Ratio(tuple(value(a) / value(b) for a, b in zip(over, under, strict=True)))
