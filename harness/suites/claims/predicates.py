"""The predicates of claims: small pure functions over evidence; each says whether it holds, and with which figures.

A predicate raises NotKnown where the evidence does not tell. `tolerance` is the share by which a limit may be missed;
one that states no limit takes none. What is at most a limit is so with the upper end of its interval over rounds, and
what is at least one with the lower end: noise then never helps to keep a limit.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from harness.suites.claims.courses import flat, gap_widens, rises
from harness.suites.claims.evidence import (
    Evidence,
    NotKnown,
    Predicate,
    PredicateResult,
    bounds_kept,
    joined,
    queries_valid,
    ratio_shown,
    shown,
)
from harness.suites.perf.intervals import ConfidenceInterval, interval
from harness.suites.regress.decide import NOT_SHOWN
from impls.placement import goal, initial
from impls.placement.movement import moved_against_minimum
from plots.data import StoredRun
from plots.metrics import at, by_name


def _all_valid(evidence: Evidence) -> PredicateResult:
    """Every run of every mechanism is valid; an invalid one fails, any other leaves it unknown."""
    runs, experiment = evidence.experiment.runs, evidence.experiment
    missing = set(experiment.mechanisms()) - {run.mechanism for run in runs}
    bad = [run for run in runs if run.verdict == "invalid"]
    if bad:
        return PredicateResult(False, ", ".join(f"{run.label} is invalid: {_first_reason(run)}" for run in bad))
    unknown = [f"{run.label}: {_first_reason(run)}" for run in runs if run.verdict != "valid"]
    if missing or unknown or not runs:
        raise NotKnown("; ".join([*(f"no run of {name}" for name in sorted(missing)), *unknown]) or "there is no run")
    return PredicateResult(True, f"{len(runs)} runs of {len(experiment.mechanisms())} mechanisms, all valid")


def _first_reason(run: StoredRun) -> str:
    return str(next(iter(run.entry.get("reasons") or []), "no reason given"))


def _below(
    evidence: Evidence, *, metric: str, mechanisms: Sequence[str], than: Sequence[str], limit: float = 1.0,
    some: bool = False, tolerance: float = 0.0,
) -> PredicateResult:  # fmt: skip
    """Each mechanism's metric is below `limit` times that of each of `than`, in every cell; `some`: that of one is.

    What counts is the upper end of the ratios' interval.
    """

    def each(mechanism: str, cell: Mapping[str, Any]) -> PredicateResult:
        return joined(_pair(evidence, metric, (mechanism, other), cell, limit * (1 + tolerance)) for other in than)

    found = [each(mechanism, cell) for mechanism in mechanisms for cell in evidence.cells()]
    return joined(((one.holds, one.figures) for one in found), some=some)


def _pair(
    evidence: Evidence, metric: str, names: tuple[str, str], cell: Mapping[str, Any], limit: float
) -> tuple[bool, str]:
    ratio = evidence.ratio(metric, *names, cell)
    own, its = (shown(metric, evidence.interval(metric, name, cell).median) for name in names)
    where = f" at {label}" if (label := evidence.experiment.cell_label(dict(cell))) else ""
    return ratio.high < limit, f"{names[0]} {own} against {names[1]} {its}{where}: {ratio_shown(ratio)}"


def _at_most(
    evidence: Evidence, *, metric: str, mechanisms: Sequence[str], limit: float, some: bool = False,
    tolerance: float = 0.0,
) -> PredicateResult:  # fmt: skip
    """Each mechanism's metric is at most `limit` over the rounds, in every cell; `some`: of one mechanism."""
    parts = _intervals(evidence, metric, mechanisms)
    return joined(((found.high <= limit * (1 + tolerance), text) for found, text in parts), some=some)


def _at_least(
    evidence: Evidence, *, metric: str, mechanisms: Sequence[str], limit: float, tolerance: float = 0.0
) -> PredicateResult:
    """Each mechanism's metric is at least `limit` over the rounds, in every cell."""
    parts = _intervals(evidence, metric, mechanisms)
    return joined((found.low >= limit * (1 - tolerance), text) for found, text in parts)


def _intervals(evidence: Evidence, metric: str, mechanisms: Sequence[str]) -> list[tuple[ConfidenceInterval, str]]:
    """Returns (median over rounds with its interval, both in words) of each mechanism in each cell."""
    parts = []
    for mechanism in mechanisms:
        for cell in evidence.cells():
            found = evidence.interval(metric, mechanism, cell)
            spread = f" ({shown(metric, found.low)} to {shown(metric, found.high)})" if found.pairs > 1 else ""
            parts.append((found, f"{mechanism} {shown(metric, found.median)}{spread}"))
    return parts


def _stays_level(
    evidence: Evidence, *, mechanism: str, columns: Sequence[str], limit: float, tolerance: float = 0.0
) -> PredicateResult:
    """The median over a run's last third of a column of its epoch log is at most `limit` times that over its first.

    A phase is a column too, in milliseconds; `total` is the whole epoch.
    """
    parts = []
    for run in evidence.runs(mechanism, {}):
        rows = run.settled_epochs
        third = len(rows) // 3
        if not third:
            raise NotKnown(f"a run of {mechanism} has too few epochs")
        for column in columns:
            first, last = (
                statistics.median(_column(row, column) for row in part) for part in (rows[:third], rows[-third:])
            )
            text = f"{column} {first:,.0f} in the first third of {len(rows):,} epochs, {last:,.0f} in the last"
            parts.append((last <= first * limit * (1 + tolerance), text))
    return joined(parts)


def _column(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name, row["ms"].get(name))
    if value is None:
        raise NotKnown(f"an epoch has no {name}")
    return float(value)


def _moves_nothing(evidence: Evidence, *, mechanism: str) -> PredicateResult:
    """The mechanism changes the owner of bins and pulls no byte of state."""
    bins, size = (evidence.values(metric, mechanism, {}).values() for metric in ("moved_bins", "moved_bytes"))
    text = f"{min(bins):,.0f} bins changed their worker, {shown('moved_bytes', max(size))} moved"
    return PredicateResult(min(bins) > 0 and max(size) == 0, text)


def _settles_sooner(
    evidence: Evidence, *, mechanisms: Sequence[str], than: str, factor: float, tolerance: float = 0.0
) -> PredicateResult:
    """One of the mechanisms is back to steady latency at least `factor` times sooner than another.

    A mechanism that was not back before its load ended has not settled; the other one then took at least that long. The
    longest of its rounds counts, and the shortest of the other's, by their intervals.
    """
    limit, words = _least_s(evidence, than)
    parts = []
    for mechanism in mechanisms:
        found = [by_name("settled_s").value(run.entry) for run in evidence.runs(mechanism, {})]
        known = [value for value in found if value is not None]
        if len(known) < len(found):
            parts.append((False, f"{mechanism} was not back in time"))
        else:
            own = interval(known)
            holds = own.high * factor <= limit * (1 + tolerance) and limit > 0
            parts.append((holds, f"{mechanism} {ratio_shown(own)} s"))
    found_ = joined(parts, some=True)
    return PredicateResult(found_.holds, f"{found_.figures}; {than} {words}")


def _least_s(evidence: Evidence, mechanism: str) -> tuple[float, str]:
    """Returns the least time to steady latency, of its interval, and its median in words.

    A run that was not back counts with the time up to the end of its load.
    """
    times, open_ended = [], False
    for run in evidence.runs(mechanism, {}):
        settled = by_name("settled_s").value(run.entry)
        if settled is None:
            begin = max((at(m, "begin_s") or 0.0 for m in run.entry.get("migrations") or []), default=None)
            rows = run.entry.get("timeline") or []
            if begin is None or not rows or at(run.entry, "latency_ms", "steady", "p50") is None:
                raise NotKnown(f"a run of {mechanism} has no steady latency to come back to")
            settled, open_ended = float(rows[-1]["at_s"]) - begin, True
        times.append(settled)
    found = interval(times)
    return found.low, f"{'more than ' if open_ended else ''}{ratio_shown(found)} s"


def _contiguous_moves(
    _evidence: Evidence, *, workers: int, workers_goal: int, bins: int, moved: int, factor: float,
    tolerance: float = 0.0,
) -> PredicateResult:  # fmt: skip
    """Contiguous ranges move `moved` bins for a rescale, at least `factor` times the least that would do."""
    before = initial(bins, workers)
    moves = moved_against_minimum(before, goal("contiguous", before, workers_goal))
    fewest = moved_against_minimum(before, goal("minimal_move", before, workers_goal)).bins
    ratio = moves.bins / moves.bins_minimum
    text = (
        f"contiguous ranges move {moves.bins} of {bins} bins for {workers} to {workers_goal} workers; the least for as "
        f"many bins per worker is {moves.bins_minimum}, {ratio:.1f}x less; minimal_move, which also chooses "
        f"who gets the larger shares, moves {fewest}"
    )
    return PredicateResult(moves.bins == moved and ratio >= factor * (1 - tolerance), text)


def _in_time(evidence: Evidence, *, minutes: float, tolerance: float = 0.0) -> PredicateResult:
    """The command ended without a failure within twice the time that the documents state, `minutes`."""
    if evidence.said.get("exit_code") != 0:
        raise NotKnown(f"the command ended with exit code {evidence.said.get('exit_code')}")
    taken = float(evidence.said["seconds"]) / 60
    return PredicateResult(
        taken <= 2 * minutes * (1 + tolerance), f"{taken:.1f} min where the documents state {minutes:g}"
    )


def _not_slower(evidence: Evidence) -> PredicateResult:
    """`./inv regress` has compared the code with its base, and shown of each measure that it is not slower.

    Where noise leaves that open of one, it is not known.
    """
    code, lines = evidence.said.get("exit_code"), evidence.said.get("lines") or []
    verdict = next((line.removeprefix("## ") for line in lines if line.startswith("## ")), None)
    if code not in (0, 1) or verdict is None:
        raise NotKnown(f"the comparison ended with exit code {code}")
    slower = [line.strip("| ").partition(" |")[0] for line in lines if "slower, confirmed" in line]
    if code == 0 and (open_ := [line.strip("| ").partition(" |")[0] for line in lines if f"| {NOT_SHOWN} |" in line]):
        raise NotKnown(f"the runs differ too much to tell of {', '.join(open_)}")
    return PredicateResult(code == 0, ", ".join([verdict, *slower]))


def _no_violation(evidence: Evidence, *, seeds: int) -> PredicateResult:
    """The simulator went through `seeds` seeds without a violation."""
    lines = evidence.said.get("lines") or []
    if evidence.said.get("exit_code") != 0:
        found = next((line for line in lines if line.startswith("Again:")), None)
        if found is None:
            raise NotKnown(f"the simulator ended with exit code {evidence.said.get('exit_code')}")
        return PredicateResult(False, found)
    told = next((line for line in lines if " 0 violations " in line), "")
    return PredicateResult(told.startswith(f"{seeds} seeds,"), told or "the simulator said nothing")


PREDICATES: dict[str, Predicate] = {
    predicate.__name__.removeprefix("_"): predicate
    for predicate in (
        _all_valid, _at_least, _at_most, _below, _contiguous_moves, _in_time, _moves_nothing,
        _no_violation, _not_slower, _settles_sooner, _stays_level, bounds_kept, flat, gap_widens,
        queries_valid, rises,
    )
}  # fmt: skip
