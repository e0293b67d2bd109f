"""What a comparison leaves: its summary as Markdown for a pull request, and a line in the history of measures."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from harness.files import read_lines, write_text
from harness.report.markdown import table_lines
from harness.suites.regress.decide import Change, Verdict
from plots.perf import draw_trend

__all__ = ["append", "line_of", "markdown"]

_WORDS = {"worse": "slower", "better": "faster", "same": "no difference"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trend</title><style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}}
svg{{max-width:100%;height:auto}}</style></head>
<body><h1>Trend</h1><p>Medians of the runs of each commit, in the order in which they were measured. Only points of one
machine can be compared.</p>{figures}</body></html>
"""


def markdown(
    commits: Mapping[str, str], verdict: Verdict, found: Mapping[str, Any], busy: tuple[int, int] = (0, 0)
) -> str:
    """Returns the page: the verdict first, then a row per measure with base, ratio and interval.

    Args:
        commits: base and head.
        verdict: of the whole comparison.
        found: findings, second, counts and worse by mechanism, as `harness.suites.regress.decide.compare` gives them.
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
        if second := found["second"].get(mechanism):
            yield f"Second round: {', '.join(f'{finding.measure} {finding.ratio}' for finding in second)}.\n"


def _row(finding: Change, worse: set[str], second: bool) -> list[str]:
    word = _WORDS[finding.verdict]
    if finding.verdict == "worse" and second:
        word = "**slower, confirmed**" if finding.measure in worse else "slower, not confirmed"
    return [finding.measure, f"{finding.base:,.1f}", str(finding.ratio), word]


def line_of(commit: str, runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Returns a commit's line: by mechanism and measure the median over its runs."""
    names = {mechanism: list(runs[0][mechanism]) for mechanism in runs[0]}
    medians = {
        mechanism: {name: median(run[mechanism][name] for run in runs if name in run[mechanism]) for name in found}
        for mechanism, found in names.items()
    }
    return {"commit": commit, "at": datetime.now(UTC).isoformat(timespec="seconds"), "runs": len(runs), **medians}


def append(path: Path, commit: str, runs: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
    """Adds a commit's line to the history and draws trend.html beside it anew."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line_of(commit, runs)) + "\n")
    write_text(path.with_name("trend.html"), _PAGE.format(figures="".join(draw_trend(read_lines(path)))))
