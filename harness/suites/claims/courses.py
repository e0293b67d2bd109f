"""The predicates of claims on how a metric goes along an axis of a sweep."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from harness.suites.claims.evidence import Evidence, NotKnown, PredicateResult, joined, ratio_shown, shown
from harness.suites.perf.intervals import ConfidenceInterval


def rises(
    evidence: Evidence, *, metric: str, mechanism: str, axis: str, factor: float = 1.0, tolerance: float = 0.0
) -> PredicateResult:
    """The metric's median rises along the axis from cell to cell, to more than `factor` times its first value.

    The last value is held against the first one by the ends of their intervals that are nearer to each other.
    """
    values = _along(evidence, metric, mechanism, axis)
    steps = [later.median >= earlier.median * (1 - tolerance) for (_, earlier), (_, later) in pairwise(values)]
    holds = all(steps) and values[-1][1].low > factor * values[0][1].high
    return PredicateResult(holds, f"{mechanism}: {_series(metric, axis, values)}")


def flat(
    evidence: Evidence, *, metric: str, mechanism: str, axis: str, limit: float, tolerance: float = 0.0
) -> PredicateResult:
    """The metric's highest value along the axis is at most `limit` times its lowest, by the ends of their intervals."""
    values = _along(evidence, metric, mechanism, axis)
    low, high = min(found.low for _, found in values), max(found.high for _, found in values)
    if not low:
        raise NotKnown(f"{metric} of {mechanism} is 0")
    text = f"{mechanism}: {_series(metric, axis, values)}, highest over lowest {high / low:.2f}"
    return PredicateResult(high / low <= limit * (1 + tolerance), text)


def _along(evidence: Evidence, metric: str, mechanism: str, axis: str) -> list[tuple[Any, ConfidenceInterval]]:
    return [(cell.get(axis), evidence.interval(metric, mechanism, cell)) for cell in _course(evidence, axis)]


def _course(evidence: Evidence, axis: str) -> list[dict[str, Any]]:
    cells = sorted(evidence.cells(), key=lambda cell: cell.get(axis, 0))
    if len(cells) < 2:
        raise NotKnown("a single cell shows no course")
    return cells


def _series(metric: str, axis: str, values: Sequence[tuple[Any, ConfidenceInterval]]) -> str:
    return ", ".join(f"{shown(metric, found.median)} at {axis} {place:,}" for place, found in values)


def gap_widens(
    evidence: Evidence, *, metric: str, mechanism: str, than: Sequence[str], axis: str, limit: float = 1.0,
    tolerance: float = 0.0,
) -> PredicateResult:  # fmt: skip
    """The ratio of the mechanism's metric to each other's is at the axis' last value below `limit` times its first.

    The upper end of the last ratio's interval counts, and the lower one of the first's.
    """
    cells, parts = _course(evidence, axis), []
    for other in than:
        first, last = (evidence.ratio(metric, mechanism, other, cell) for cell in (cells[0], cells[-1]))
        shown = (
            f"{ratio_shown(found)} at {axis} {cell[axis]}" for found, cell in ((first, cells[0]), (last, cells[-1]))
        )
        parts.append((last.high < first.low * limit * (1 + tolerance), f"{mechanism} over {other}: {', '.join(shown)}"))
    return joined(parts)
