"""The summary of a comparison, as Markdown for a pull request."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.report.markdown import table_lines
from harness.suites.regress.decide import Change, Verdict

__all__ = ["markdown"]

_WORDS = {"worse": "slower", "better": "faster", "same": "no difference"}


def markdown(
    commits: Mapping[str, str], verdict: Verdict, found: Mapping[str, Any], busy: tuple[int, int] = (0, 0)
) -> str:
    """Returns the page: the verdict first, then a row per measure with base, ratio and interval.

    Args:
        commits: base and head.
        verdict: of the whole comparison.
        found: findings, second, counts and worse by mechanism, as `harness.suites.regress.run.compare` gives them.
        busy: runs that are in it although the machine was busy, and all runs.
    """
    caution = (
        f"During {busy[0]} of {busy[1]} runs other work took more than 10 % of the CPU time, also when they were run "
        "anew: compare again on a quiet machine.\n"
    )
    return "\n".join([*_lines(commits, verdict, found), *([caution] if busy[0] else [])]) + "\n"


def _lines(commits: Mapping[str, str], verdict: Verdict, found: Mapping[str, Any]) -> Iterator[str]:
    said = "**worse**" if verdict == "worse" else "no regression"
    yield f"## {said}: {commits['head'][:12]} against {commits['base'][:12]}\n"
    for mechanism, findings in found["findings"].items():
        worse = {finding.measure for finding in found["worse"][mechanism]}
        yield f"### {mechanism}\n"
        rows = [_row(finding, worse, bool(found["second"])) for finding in findings]
        for name, (before, after) in found["counts"][mechanism].items():
            rows.append([name, f"{before:,.0f}", f"{after:,.0f}", "changed"])
        yield from table_lines(("measure", "base", "head / base (95 % interval)", ""), rows, "lrrl")
        yield ""
        yield from _again(found["second"].get(mechanism, ()))


def _row(finding: Change, worse: set[str], second: bool) -> list[str]:
    word = _WORDS[finding.verdict]
    if finding.verdict == "worse" and second:
        word = "**slower, confirmed**" if finding.measure in worse else "slower, not confirmed"
    return [finding.measure, f"{finding.base:,.1f}", str(finding.ratio), word]


def _again(findings: Sequence[Change]) -> Iterator[str]:
    if findings:
        shown = ", ".join(f"{finding.measure} {finding.ratio}" for finding in findings)
        yield f"Second round: {shown}.\n"
