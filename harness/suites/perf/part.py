"""What the parts of the performance suite share: what they give, and runs of variants interleaved on one machine.

A part gives tables, checks against stated bounds, and curves to draw. Only ratios of one round are compared.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.experiment.description import Experiment
from harness.files import read_json
from harness.results.entry import ENTRY_FILE
from harness.results.place import failure_of, told_failure
from harness.run.progress import Lines
from harness.run.runs import AGAIN, NamedRun, Watcher, begin_anew, busy_runs, run_all
from harness.suites.bench import place_run
from harness.suites.perf.intervals import ConfidenceInterval, interval
from impls.errors import StateError, UsageError
from plots.metrics import at

STEADY_MEASURES = {
    "epoch p50": ("epoch_ms", "steady", "p50"),
    "epoch p99": ("epoch_ms", "steady", "p99"),
    "latency p50": ("latency_ms", "steady", "p50"),
    "latency p99": ("latency_ms", "steady", "p99"),
}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Scale:
    """How large a measurement is: in full, or so small that it only shows that the part works."""

    quick: bool = False

    def pick(self, full: _T, quick: _T) -> _T:
        """Returns the value of this scale."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Spread:
    """Values of one measure, one per round: their median and range."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return float(np.median(self.values))

    def text(self, digits: int = 0) -> str:
        """Returns the median, with the range where there is more than one round."""
        shown = f"{self.median:,.{digits}f}"
        if len(self.values) < 2:
            return shown
        return f"{shown} ({min(self.values):,.{digits}f} to {max(self.values):,.{digits}f})"

    def __str__(self) -> str:
        """Returns the text of a measure of one variant over that of another, with the number of rounds."""
        return f"{self.median:.3f} ({min(self.values):.3f} to {max(self.values):.3f}, {len(self.values)} rounds)"


@dataclass(frozen=True)
class Table:
    """A table of a part: cells are text already, `note` says what its reader must know."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A figure against its bound: at most it, or at least it.

    Attributes:
        edge: the end of the figure's interval that is nearer to breaking the bound, which noise moves towards that;
            None where there is no interval.
    """

    sentence: str
    value: float
    bound: float
    at_most: bool
    edge: float | None = None

    @classmethod
    def of(cls, sentence: str, values: Sequence[float], bound: float, *, at_most: bool) -> "Check":
        """Returns the check of a median over rounds, or pairs, held against the bound by the end of its interval."""
        return cls.within(sentence, interval(values), bound, at_most=at_most)

    @classmethod
    def within(cls, sentence: str, found: ConfidenceInterval, bound: float, *, at_most: bool) -> "Check":
        """Returns the check of an interval that is known already, as `of` does."""
        return cls(sentence, found.median, bound, at_most, found.high if at_most else found.low)

    @property
    def holds(self) -> bool:
        """Whether all of the figure's interval keeps its bound."""
        held = self.value if self.edge is None else self.edge
        return held <= self.bound if self.at_most else held >= self.bound

    def to_json(self) -> dict[str, Any]:
        """Returns the check with whether it holds; what is infinite, as it is over nothing, is None and `unbounded`."""
        values = asdict(self)
        endless = {name: None for name in ("value", "edge") if values[name] in {math.inf, -math.inf}}
        return {**values, **endless, **({"unbounded": True} if endless else {}), "holds": self.holds}


@dataclass(frozen=True)
class PartResult:
    """What a part has found; `curves` are what `plots.perf` draws: by figure, by line, lists of points."""

    tables: Sequence[Table]
    checks: Sequence[Check] = ()
    curves: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the findings, each check with whether it holds."""
        return {**asdict(self), "checks": [check.to_json() for check in self.checks]}


@dataclass(frozen=True)
class Part:
    """A part of the suite: `measure(folder, scale)` measures what is not in the folder yet and returns its findings."""

    title: str
    minutes: float
    measure: Callable[[Path, Scale], PartResult]


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
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    view = Lines(rounds * len(names))
    for number in range(rounds):
        order = [names[i] for i in draw.permutation(len(names)).tolist()]
        for name, entry in _round(variants, order, number, folder / "runs", view, warm=warm).items():
            entries[name].append(entry)
    return entries


def _round(
    variants: Mapping[str, Experiment], order: Sequence[str], number: int, folder: Path, view: Watcher, *, warm: bool
) -> dict[str, dict[str, Any]]:
    """Returns the entries of a round by variant; one during which the machine was busy is made anew, up to a limit."""
    runs = {
        name: NamedRun(variants[name], variants[name].mechanisms[0], number, 0, place=f"{number:02d}-{name}")
        for name in order
    }
    for again in range(AGAIN + 1):
        entries = {name: _entry_of(run, folder, view, warm=warm) for name, run in runs.items()}
        if again == AGAIN or not busy_runs(list(runs.values()), folder):
            break
        view.note(f"The machine was busy during round {number}: it is run anew, {again + 1} of {AGAIN} times at most.")
        for run in runs.values():
            begin_anew(folder / run.folder)
    return entries


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


def spread(entries: Sequence[dict[str, Any]], *path: str) -> Spread:
    """Returns a value of the entries; raises StateError where a run has no such value, as it never warmed up."""
    found = [at(entry, *path) for entry in entries]
    if not all(found):
        raise StateError(f"A run has no {' '.join(path)}, as it never warmed up: make the load longer.")
    return Spread(tuple(float(value) for value in found if value is not None))


def migrations(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the migrations of all entries; raises StateError for one that moved nothing, which has no duration."""
    every = [migration for entry in entries for migration in entry["migrations"]]
    for migration in every:
        if migration["duration_s"] is None:
            raise StateError(f"The migration {migration['label']!r} has no duration. {migration['outcome']}")
    return every


def ratio(over: Sequence[dict[str, Any]], under: Sequence[dict[str, Any]], *path: str) -> Spread:
    """Returns, round by round, a value of one variant's entry over that of the other's; raises as `spread` does."""
    return Spread(tuple(a / b for a, b in zip(spread(over, *path).values, spread(under, *path).values, strict=True)))
