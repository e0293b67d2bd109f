"""The comparison of two revisions' runs, mechanism by mechanism, with a second round for a suspect."""

from collections.abc import Sequence
from typing import Any

from harness.suites.regress.decide import Change, Verdict, changed_counts, confirmed, find, overall

__all__ = ["Runs", "compare"]

Runs = dict[str, list[dict[str, dict[str, float]]]]


def compare(first: Runs, again: Any) -> tuple[Verdict, dict[str, Any]]:
    """Returns the verdict and what it rests on; `again()` measures a second round, and is asked if one is suspect."""
    mechanisms = list(first["base"][0])
    findings = {name: _findings(first, name) for name in mechanisms}
    counts = {name: changed_counts(*(_of(first, side, name) for side in ("base", "head"))) for name in mechanisms}
    worse: dict[str, list[Change]] = {name: [] for name in mechanisms}
    second: dict[str, list[Change]] = {}
    if any(f.verdict == "worse" for found in findings.values() for f in found):
        more = again()
        second = {name: _findings(more, name) for name in mechanisms}
        worse = {name: confirmed(findings[name], second[name]) for name in mechanisms}
    verdicts = [overall(worse[name], counts[name]) for name in mechanisms]
    verdict: Verdict = "worse" if "worse" in verdicts else "same"
    return verdict, {"findings": findings, "second": second, "counts": counts, "worse": worse}


def _of(runs: Runs, side: str, mechanism: str) -> Sequence[dict[str, float]]:
    return [run[mechanism] for run in runs[side]]


def _findings(runs: Runs, mechanism: str) -> list[Change]:
    return find(_of(runs, "base", mechanism), _of(runs, "head", mechanism))
