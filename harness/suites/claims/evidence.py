"""What a predicate looks at: stored results, and what a suite has written; and what it answers."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.files import read_json
from harness.suites import nexmark
from harness.suites.perf import suite as perf
from harness.suites.perf.intervals import ConfidenceInterval, interval
from impls.errors import UsageError
from plots.data import StoredExperiment, StoredRun, load
from plots.metrics import by_name, show

EVIDENCE_FILE = "evidence.json"


class NotKnown(Exception):  # noqa: N818 - a verdict, not a failure
    """The evidence does not tell; the message says why."""


@dataclass(frozen=True)
class Evidence:
    """A result folder: an experiment with its runs, or what a command said; without a folder for what is computed.

    Attributes:
        folder: the result folder.
        said: what evidence.json holds of a command: exit_code, lines of its standard output.
    """

    folder: Path | None = None
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """The result folder; raises NotKnown where there is none."""
        if self.folder is None:
            raise NotKnown("there is no result")
        return self.folder

    @cached_property
    def experiment(self) -> StoredExperiment:
        """The experiment; raises NotKnown where its result cannot be read."""
        try:
            return load(self.place)
        except ValueError as error:
            raise NotKnown(str(error)) from error

    @property
    def origin(self) -> str:
        """Where and at which commit it was measured."""
        if self.folder is None:
            return "computed"
        described = read_json(self.folder / "experiment.json") or dict(self.said)
        here = described.get("environment") or {}
        dirty = " (dirty)" if here.get("dirty") else ""
        return f"{self.folder.name}, commit {str(here.get('commit', 'unknown'))[:12]}{dirty}"

    def json_lines(self) -> list[dict[str, Any]]:
        """Returns the lines of a command's output that are JSON objects; raises NotKnown if it failed."""
        if self.said.get("exit_code") != 0:
            raise NotKnown(f"the command ended with exit code {self.said.get('exit_code')}")
        return [json.loads(line) for line in self.said["lines"] if line.startswith("{")]

    def cells(self) -> list[dict[str, Any]]:
        """Returns the cells of a sweep; one empty cell for any other experiment."""
        return self.experiment.cells() or [{}]

    def runs(self, mechanism: str, cell: Mapping[str, Any]) -> list[StoredRun]:
        """Returns a mechanism's comparable runs of a cell, by round.

        Raises:
            NotKnown: one of its runs is not valid, there is none, or the load of all came late.
        """
        experiment = self.experiment
        runs = [run for run in experiment.ordered() if run.mechanism == mechanism and run.cell == dict(cell)]
        where = f"{mechanism}{' at ' + label if (label := experiment.cell_label(dict(cell))) else ''}"
        if not runs:
            raise NotKnown(f"there is no run of {where}")
        for run in runs:
            if run.verdict != "valid":
                raise NotKnown(f"a run of {where} is {run.verdict}")
        if not (met := [run for run in runs if not run.why_withheld()]):
            raise NotKnown(f"the load of every run of {where} came late")
        return met

    def values(self, metric: str, mechanism: str, cell: Mapping[str, Any]) -> dict[int, float]:
        """Returns a metric by round; raises NotKnown where a run has none, and UsageError for an unknown metric."""
        try:
            of = by_name(metric)
        except KeyError:
            raise UsageError(f"The metric {metric!r} is unknown.") from None
        found = {run.round: of.value(run.entry) for run in self.runs(mechanism, cell)}
        known = {round_: value for round_, value in found.items() if value is not None}
        if len(known) < len(found):
            raise NotKnown(f"a run of {mechanism} has no {of.label}")
        return known

    def interval(self, metric: str, mechanism: str, cell: Mapping[str, Any]) -> ConfidenceInterval:
        """Returns a metric's median over rounds with its interval; raises as `values` does."""
        return interval([*self.values(metric, mechanism, cell).values()])

    def ratio(self, metric: str, over: str, under: str, cell: Mapping[str, Any]) -> ConfidenceInterval:
        """Returns one mechanism's metric over another's of the same round: the median over rounds with its interval.

        Raises:
            NotKnown: as `values` does; no common round; or nothing to divide by.
        """
        above, below = self.values(metric, over, cell), self.values(metric, under, cell)
        common = sorted(above.keys() & below.keys())
        if not common or not all(below[round_] for round_ in common):
            raise NotKnown(f"{metric} of {over} and {under} have no ratio")
        return interval([above[round_] / below[round_] for round_ in common])


@dataclass(frozen=True)
class PredicateResult:
    """Whether a predicate holds, and the figures that say so."""

    holds: bool
    figures: str


Predicate = Callable[..., PredicateResult]


def shown(metric: str, value: float) -> str:
    """Returns a metric's value with its unit."""
    return show(value, by_name(metric).unit)


def ratio_shown(ratio: ConfidenceInterval) -> str:
    """Returns a ratio with its interval, where it has one."""
    spread = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.low < ratio.high else ""
    return f"{ratio.median:.2f}{spread}"


def joined(parts: Iterable[tuple[bool, str]], *, some: bool = False) -> PredicateResult:
    """Joins single findings: all must hold, or with `some` one; those that do not come first.

    Raises:
        NotKnown: there is none.
    """
    findings = list(parts)
    if not findings:
        raise NotKnown("there is nothing to look at")
    holds = (any if some else all)(ok for ok, _ in findings)
    return PredicateResult(holds, "; ".join(text for _, text in sorted(findings, key=lambda one: one[0] != some)))


def queries_valid(evidence: Evidence, *, queries: int) -> PredicateResult:
    """Every run of every one of `queries` queries is valid; an invalid one fails, any other leaves it unknown."""
    rows = nexmark.read_rows(evidence.place)
    there = {row["query"] for row in rows}
    named = [f"{row['query']} {row['mechanism']} is {row['verdict']}" for row in rows if not _valid(row)]
    if any(row["verdict"].startswith("invalid") for row in rows):
        return PredicateResult(False, "; ".join(named))
    if named or len(there) < queries:
        raise NotKnown("; ".join([*named, f"{len(there)} of {queries} queries were run"]))
    faults = sum("@" in row["mechanism"] for row in rows)
    hit = f", {faults} of them with a fault" if faults else ""
    return PredicateResult(True, f"{len(rows)} runs of {len(there)} queries{hit}, all valid")


def _valid(row: dict[str, Any]) -> bool:
    return str(row["verdict"]).startswith("valid")


def bounds_kept(evidence: Evidence, *, part: str, tolerance: float = 0.0) -> PredicateResult:
    """Every figure of a part of `./inv perf` keeps the bound that the part states."""
    found = read_json(evidence.place / perf.RESULT_FILE).get("parts", {}).get(part)
    if found is None:
        raise NotKnown(f"the part {part} was not measured")
    return joined(_kept(check, tolerance) for check in found["checks"])


def _kept(check: dict[str, Any], tolerance: float) -> tuple[bool, str]:
    """Returns whether a figure keeps its bound, and both in words."""
    value, bound, most = check["value"], check["bound"], check["at_most"]
    if check.get("unbounded"):
        return bool(check["holds"]), f"{check['sentence']} without end (at {'most' if most else 'least'} {bound:g})"
    edge = value if check.get("edge") is None else check["edge"]  # of a single value there is no interval
    kept = edge <= bound * (1 + tolerance) if most else edge >= bound * (1 - tolerance)
    spread = "" if edge == value else f", {'up' if most else 'down'} to {edge:,.3g}"
    return bool(kept), f"{check['sentence']} {value:,.3g}{spread} (at {'most' if most else 'least'} {bound:g})"
