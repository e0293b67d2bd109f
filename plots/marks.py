"""What figures over many experiments show: groups of runs that are alike, and in each a mark per mechanism."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plots.data import StoredExperiment, StoredRun
from plots.metrics import Metric, show

Value = Callable[[StoredRun], float | None]


@dataclass(frozen=True, slots=True)
class Group:
    """The comparable runs of an experiment, in a sweep of one of its cells."""

    label: str
    experiment: StoredExperiment
    cell: dict[str, Any]

    def runs_of(self, mechanism: str) -> list[StoredRun]:
        """Returns the comparable runs of a mechanism, in order of rounds."""
        return [run for run in self.experiment.rounds_of(mechanism) if run.cell == self.cell]


@dataclass(frozen=True, slots=True)
class Mark:
    """A mechanism's value in a group.

    Attributes:
        mechanism: its name.
        middle: the median over rounds.
        low, high: ends of the mark's line: the lowest and highest round, or the medians of two values.
        rounds: number of runs.
    """

    mechanism: str
    middle: float
    low: float
    high: float
    rounds: int

    def describe(self, metric: Metric, upto: Metric | None = None) -> str:
        """Returns the values as text; with `upto` the line ends at that other metric's value."""
        middle, low, high = (show(value, metric.unit) for value in (self.middle, self.low, self.high))
        runs = f"{self.rounds} run{'' if self.rounds == 1 else 's'}"
        if upto is not None:
            return f"{metric.label} {middle}, {upto.label} {high}, {runs}"
        return f"{middle}, {runs}" if low == high else f"{middle} ({low} to {high}), {runs}"


def labels_of(experiments: list[StoredExperiment]) -> list[str]:
    """Returns each experiment's name; of those with the same name the folder's name, or its path."""
    names, folders = [e.name for e in experiments], [e.folder.name for e in experiments]
    return [
        name if names.count(name) == 1 else folder if folders.count(folder) == 1 else str(experiment.folder)
        for name, folder, experiment in zip(names, folders, experiments, strict=True)
    ]


def groups_of(experiments: list[StoredExperiment]) -> list[Group]:
    """Returns the groups of all experiments, in their order."""
    return [
        Group(", ".join(filter(None, (label, experiment.cell_label(cell)))), experiment, cell)
        for label, experiment in zip(labels_of(experiments), experiments, strict=True)
        for cell in experiment.cells()
    ]


def marks_of(group: Group, value: Value, upto: Value | None = None) -> list[Mark]:
    """Returns a mark for each mechanism that has such a value above 0, as the axes are logarithmic."""
    out = []
    for mechanism in group.experiment.mechanisms():
        runs = group.runs_of(mechanism)
        values = _known(runs, value)
        if not values:
            continue
        middle, low, high = statistics.median(values), min(values), max(values)
        if upto is not None:
            low, high = middle, statistics.median(_known(runs, upto) or [middle])
        out.append(Mark(mechanism, middle, low, high, len(values)))
    return out


def _known(runs: list[StoredRun], value: Value) -> list[float]:
    return [number for run in runs if (number := value(run)) is not None and number > 0]
