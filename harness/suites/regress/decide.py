"""The decision: pure functions from measures of runs in pairs to what has become worse.

Both revisions run in the order A B B A, so that pair i of either was measured at the same time, and what counts is the
ratio within a pair. A measure is suspect when the median of its ratios is above the least effect that matters, and the
ratios are too many on that side to be chance (an exact interval of the median excludes 1). A suspect is worse when a
second round of pairs, on its own, says the same; chance alone does that to one measure in a thousand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from harness.suites.perf.intervals import ConfidenceInterval, interval
from impls.errors import StateError

Verdict = Literal["worse", "better", "same"]
Measures = Mapping[str, float]

NOT_SHOWN = "not shown"  # of a measure that may be slower by more than what matters
_EFFECT = 0.08  # what is below is within what a compiler's mood does to an epoch
TIMES = ("epoch_p50_ms", "epoch_p99_ms", "steady_p50_ms", "steady_p99_ms", "migrating_p99_ms")
_COUNTS = ("records", "moved_bins", "moved_bytes", "pulls")


@dataclass(frozen=True)
class MeasureChange:
    """What is known of one measure: head over base, the base's median, and the verdict of one round."""

    measure: str
    base: float
    ratio: ConfidenceInterval
    verdict: Verdict

    @property
    def shown(self) -> bool:
        """Whether it is not slower by what matters with all of the interval: noise alone does not show that."""
        return self.ratio.high <= 1 + _EFFECT


def sides(pairs: int) -> list[str]:
    """Returns which revision runs when: base, head, head, base, ...

    >>> sides(3)
    ['base', 'head', 'head', 'base', 'base', 'head']
    """
    return [("base", "head")[(number + number // 2) % 2] for number in range(2 * pairs)]


def find(base: Sequence[Measures], head: Sequence[Measures], *, effect: float = _EFFECT) -> list[MeasureChange]:
    """Returns a finding for each measure of time that all runs have.

    Args:
        base: measures of the base's runs, pair by pair.
        head: measures of the head's runs, in the same order.
        effect: the least share by which a measure must have grown to matter.
    """
    out = []
    for name in TIMES:
        if not all(name in run for run in (*base, *head)):
            continue
        ratio = interval([h[name] / b[name] for b, h in zip(base, head, strict=True)])
        verdict: Verdict = "same"
        if ratio.median > 1 + effect and ratio.low > 1:
            verdict = "worse"
        elif ratio.median < 1 / (1 + effect) and ratio.high < 1:
            verdict = "better"
        out.append(MeasureChange(name, interval([run[name] for run in base]).median, ratio, verdict))
    return out


def confirmed(first: Sequence[MeasureChange], second: Sequence[MeasureChange]) -> list[MeasureChange]:
    """Returns the findings of the second round whose measure is worse in both."""
    suspects = {finding.measure for finding in first if finding.verdict == "worse"}
    return [finding for finding in second if finding.verdict == "worse" and finding.measure in suspects]


def changed_counts(base: Sequence[Measures], head: Sequence[Measures]) -> dict[str, tuple[float, float]]:
    """Returns the counts that do not depend on time and differ, as (base, head): no statistics is needed for them."""
    out = {}
    for name in _COUNTS:
        before, after = ({run[name] for run in runs if name in run} for runs in (base, head))
        if len(before) == len(after) == 1 and before != after:
            out[name] = (before.pop(), after.pop())
    return out


def overall(worse: Sequence[MeasureChange], counts: Mapping[str, tuple[float, float]]) -> Verdict:
    """Returns the verdict of the comparison; a changed count is no regression, but a larger one is."""
    grown = [name for name, (before, after) in counts.items() if after > before * (1 + _EFFECT)]
    return "worse" if worse or grown else "same"


Runs = dict[str, list[dict[str, dict[str, float]]]]


def compare(first: Runs, again: Any) -> tuple[Verdict, dict[str, Any]]:
    """Returns the verdict and what it rests on; `again()` measures a second round, and is asked if one is suspect.

    Raises StateError when no mechanism was measured, or one has no time in all of its runs: nothing is decided then.
    """
    mechanisms = list(first["base"][0]) if first["base"] else []
    findings = {name: _findings(first, name) for name in mechanisms}
    if bare := [name for name, found in findings.items() if not found] or ["any mechanism"] * (not mechanisms):
        raise StateError(f"Nothing can be compared of {bare[0]}: no time was measured in all of its runs.")
    counts = {name: changed_counts(*(_of(first, side, name) for side in ("base", "head"))) for name in mechanisms}
    worse: dict[str, list[MeasureChange]] = {name: [] for name in mechanisms}
    second: dict[str, list[MeasureChange]] = {}
    if any(f.verdict == "worse" for found in findings.values() for f in found):
        more = again()
        second = {name: _findings(more, name) for name in mechanisms}
        worse = {name: confirmed(findings[name], second[name]) for name in mechanisms}
    verdicts = [overall(worse[name], counts[name]) for name in mechanisms]
    verdict: Verdict = "worse" if "worse" in verdicts else "same"
    return verdict, {"findings": findings, "second": second, "counts": counts, "worse": worse}


def _of(runs: Runs, side: str, mechanism: str) -> Sequence[dict[str, float]]:
    return [run[mechanism] for run in runs[side]]


def _findings(runs: Runs, mechanism: str) -> list[MeasureChange]:
    return find(_of(runs, "base", mechanism), _of(runs, "head", mechanism))


def resampled(pool: Runs, number: int, seed: int = 1) -> list[tuple[Verdict, dict[str, Any]]]:
    """Returns what each of `number` comparisons of a revision with itself says: how often chance alone finds it worse.

    In every one the second round is drawn again as well. A round has as many pairs as the pool: drawn from it with
    replacement, each with its sides either way round, so that what differs within a pair is what this machine does in
    the time of two runs.
    """
    draw = np.random.default_rng(seed)
    pairs = list(zip(pool["base"], pool["head"], strict=True))

    def drawn() -> Runs:
        chosen = draw.integers(0, len(pairs), len(pairs)).tolist()
        swaps = draw.integers(0, 2, len(pairs)).tolist()
        turned = [pairs[i][::-1] if swap else pairs[i] for i, swap in zip(chosen, swaps, strict=True)]
        return {"base": [base for base, _ in turned], "head": [head for _, head in turned]}

    return [compare(drawn(), drawn) for _ in range(number)]
