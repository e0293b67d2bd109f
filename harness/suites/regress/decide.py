"""The decision: pure functions from measures of runs in pairs to what has become worse.

Both revisions run in the order A B B A, so that pair i of either was measured at the same time, and what counts is the
ratio within a pair. A measure is suspect when the median of its ratios is above the least effect that matters, and the
ratios are too many on that side to be chance (an exact interval of the median excludes 1). A suspect is worse when a
second round of pairs, on its own, says the same; chance alone does that to one measure in a thousand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.suites.perf.twin.pairs import Interval, interval

__all__ = ["TIMES", "Change", "Verdict", "changed_counts", "confirmed", "find", "overall", "sides"]

Verdict = Literal["worse", "better", "same"]
Measures = Mapping[str, float]

EFFECT = 0.08  # what is below is within what a compiler's mood does to an epoch
TIMES = ("epoch_p50_ms", "epoch_p99_ms", "steady_p50_ms", "steady_p99_ms", "migrating_p99_ms")
_COUNTS = ("records", "moved_bins", "moved_bytes", "pulls")


@dataclass(frozen=True)
class Change:
    """What is known of one measure: head over base, the base's median, and the verdict of one round."""

    measure: str
    base: float
    ratio: Interval
    verdict: Verdict


def sides(pairs: int) -> list[str]:
    """Returns which revision runs when: base, head, head, base, ...

    >>> sides(3)
    ['base', 'head', 'head', 'base', 'base', 'head']
    """
    return [("base", "head")[(number + number // 2) % 2] for number in range(2 * pairs)]


def find(base: Sequence[Measures], head: Sequence[Measures], *, effect: float = EFFECT) -> list[Change]:
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
        out.append(Change(name, interval([run[name] for run in base]).median, ratio, verdict))
    return out


def confirmed(first: Sequence[Change], second: Sequence[Change]) -> list[Change]:
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


def overall(worse: Sequence[Change], counts: Mapping[str, tuple[float, float]]) -> Verdict:
    """Returns the verdict of the comparison; a changed count is no regression, but a larger one is."""
    grown = [name for name, (before, after) in counts.items() if after > before * (1 + EFFECT)]
    return "worse" if worse or grown else "same"
