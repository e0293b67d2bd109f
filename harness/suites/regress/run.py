"""`./inv regress --base REV`: both revisions run in turns, compared, and a suspect confirmed by a second round.

A comparison leaves its summary, as Markdown for a pull request, and a line in the history of measures.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from harness.experiment.parameters import PARAMETERS
from harness.files import RESULTS, ROOT, read_json, read_lines, write_json, write_text
from harness.options import ending
from harness.options.declared import read_given
from harness.report.terminal import table_lines
from harness.results.machine import describe_machine
from harness.results.place import find_folder, new_folder
from harness.run.runs import AGAIN
from harness.setup.java import ensure_jars, use_java
from harness.suites.options import REGRESS
from harness.suites.regress.decide import NOT_SHOWN, MeasureChange, Runs, Verdict, compare, resampled, sides
from harness.suites.regress.trees import Tree, measures_of, revision, was_busy, work_tree
from impls.errors import UsageError
from plots.perf import draw_trend

_STORED = ROOT / "results" / "reference" / "regress.json"


def base_of(stored: Path = _STORED) -> str:
    """Returns the base of the stored comparison; raises UsageError where none is stored, as outside a clone."""
    commit = read_json(stored).get("base")
    if commit is None:
        raise UsageError(f"{stored} names no revision to compare with: name one with --base.")
    return str(commit)


def store(
    commits: Mapping[str, str],
    bench: list[str],
    comparison: Mapping[str, Any],
    machine: Mapping[str, Any],
    stored: Path = _STORED,
) -> None:
    """Writes a comparison as the stored one.

    Args:
        commits: base and head.
        bench: the options that both ran with.
        comparison: findings and second by mechanism, as `harness.suites.regress.decide.compare` gives them.
        machine: what it was measured on, see `harness.results.machine`.
        stored: the file.
    """
    ratios = {
        mechanism: {
            change.measure: {"base": round(change.base, 2), "head_over_base": str(change.ratio)} for change in changes
        }
        for mechanism, changes in {**comparison["findings"], **comparison["second"]}.items()
    }
    write_json(stored, {**commits, "bench": bench, "ratios": ratios, "machine": dict(machine)})


_OPTIONS = {"workload": "dense", "mechanism": "megaphone-batched", "keys": "1M", "rate": "10000", "duration": "18"}
_QUICK = {"keys": "100k", "rate": "2000", "duration": "9", "bins": "64"}
_AS_BENCH = ("mode", "arrivals", "workers", "bins")  # a revision's own default unless they are given
_WORDS = {"worse": "slower", "better": "faster", "same": "no difference"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trend</title><style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}}
svg{{max-width:100%;height:auto}}</style></head>
<body><h1>Trend</h1><p>Medians of the runs of each commit, in the order in which they were measured. Only points of one
machine can be compared.</p>{figures}</body></html>
"""


class Comparison:
    """Measures rounds of pairs of two work trees into a folder; what is there already is not run again."""

    def __init__(self, trees: Mapping[str, Tree], folder: Path, options: list[str], pairs: int):
        self._trees, self._folder, self._options, self._pairs = trees, folder, options, pairs

    def round(self, number: int) -> Runs:
        """Returns the measures of each side's runs by mechanism, in order of pairs."""
        runs: Runs = {"base": [], "head": []}
        for place, side in enumerate(sides(self._pairs)):
            path = self._folder / f"round-{number}" / f"{place:02d}-{side}"
            kept = path / "measures.json"
            if not kept.exists():
                sys.stderr.write(f"round {number}, run {place + 1} of {2 * self._pairs}: {side}\n")
                write_json(kept, measures_of(self._bench(path, side)))
            runs[side].append(read_json(kept))
        return runs

    def _bench(self, path: Path, side: str) -> Path:
        """Returns the result of a run; one during which the machine was busy is made anew, up to a limit."""
        for again in range(AGAIN + 1):
            folder = self._trees[side].bench(path, self._options)
            if again == AGAIN or not was_busy(folder):
                break
            sys.stderr.write(f"the machine was busy: run anew, {again + 1} of {AGAIN} times at most\n")
            shutil.rmtree(path)
        return folder

    def busy(self) -> tuple[int, int]:
        """Returns how many runs stay in the comparison although the machine was busy, and how many there are."""
        results = [path.parent for path in self._folder.glob("round-*/*/*/result.json")]
        return sum(map(was_busy, results)), len(results)


def bench_options(options: Mapping[str, Any]) -> list[str]:
    """Returns the options of `./inv bench` for each run; raises UsageError for what it would refuse."""
    chosen = {**_OPTIONS, **(_QUICK if options.get("quick") else {})}
    chosen |= {name: _text(options[name]) for name in (*_OPTIONS, *_AS_BENCH) if options.get(name)}
    read_given(PARAMETERS, chosen)
    return [word for name, value in chosen.items() for word in (f"--{name}", value)]


def _text(value: Any) -> str:
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


@ending("cut off; the same options again go on")
def run_regress(options: Mapping[str, Any]) -> int:
    """Compares two revisions; returns 0 when nothing has become worse, 1 when something has, 2 for bad input."""
    asked = read_given(REGRESS, options)
    pairs = asked.get("pairs", 9)
    commits = {"base": revision(str(options.get("base") or base_of())), "head": revision(options.get("head") or "HEAD")}
    resample = asked.get("resample", 0)
    if resample and commits["base"] != commits["head"]:
        raise UsageError("--resample compares a revision with itself: give it as --base and as --head.")
    bench = bench_options(options)
    use_java()
    ensure_jars()
    folder = _folder(Path(options.get("output") or RESULTS), commits, bench, pairs)
    with ExitStack() as stack:
        trees = {
            side: stack.enter_context(work_tree(commit, folder / "trees" / side)) for side, commit in commits.items()
        }
        comparison = Comparison(trees, folder, bench, pairs)
        first = comparison.round(1)
        if resample:
            worse = sum(verdict == "worse" for verdict, _ in resampled(first, resample))
            text = f"{worse} of {resample} comparisons of this revision with itself, from {pairs} pairs of runs, "
            return _finish(folder, f"{text}say worse\n", worse=worse > 0)
        verdict, comparison_found = compare(first, lambda: comparison.round(2))
    append(folder.parent / "history.jsonl", commits["head"], first["head"])
    if options.get("reference"):
        store(commits, bench, comparison_found, describe_machine(0))
    return _finish(folder, markdown(commits, verdict, comparison_found, comparison.busy()), worse=verdict == "worse")


def _finish(folder: Path, text: str, *, worse: bool) -> int:
    """Writes and prints what has come out; returns the exit code."""
    write_text(folder / "summary.md", text)
    (folder / "done").touch()
    sys.stdout.write(f"{text}{folder}\n")
    return int(worse)


def _folder(output: Path, commits: Mapping[str, str], bench: list[str], pairs: int) -> Path:
    """Returns the unfinished result of the same comparison, or a new one."""
    asked = {"commits": dict(commits), "bench": bench, "pairs": pairs}
    begun = find_folder(output, "regress.json", asked.__eq__, finished=False)
    if begun is not None:
        return begun
    folder = new_folder(output, "regress")
    write_json(folder / "regress.json", asked)
    return folder


def markdown(
    commits: Mapping[str, str], verdict: Verdict, comparison: Mapping[str, Any], busy: tuple[int, int] = (0, 0)
) -> str:
    """Returns the page: the verdict first, then a row per measure with base, ratio and interval.

    Args:
        commits: base and head.
        verdict: of the whole comparison.
        comparison: findings, second, counts and worse by mechanism, see `harness.suites.regress.decide.compare`.
        busy: runs that are in it although the machine was busy, and all runs.
    """
    caution = (
        f"During {busy[0]} of {busy[1]} runs other work took more than 10 % of the CPU time, also when they were run "
        "anew: compare again on a quiet machine.\n"
    )
    return "\n".join([*_lines(commits, verdict, comparison), *([caution] if busy[0] else [])]) + "\n"


def _lines(commits: Mapping[str, str], verdict: Verdict, comparison: Mapping[str, Any]) -> Iterator[str]:
    said = "**worse**" if verdict == "worse" else "no regression"
    yield f"## {said}: {commits['head'][:12]} against {commits['base'][:12]}\n"
    for mechanism, findings in comparison["findings"].items():
        worse = {finding.measure for finding in comparison["worse"][mechanism]}
        yield f"### {mechanism}\n"
        rows = [_row(finding, worse, bool(comparison["second"])) for finding in findings]
        for name, (before, after) in comparison["counts"][mechanism].items():
            rows.append([name, f"{before:,.0f}", f"{after:,.0f}", "changed"])
        yield from table_lines(("measure", "base", "head / base (95 % interval)", ""), rows, "lrrl")
        yield ""
        if second := comparison["second"].get(mechanism):
            yield f"Second round: {', '.join(f'{finding.measure} {finding.ratio}' for finding in second)}.\n"


def _row(finding: MeasureChange, worse: set[str], second: bool) -> list[str]:
    word = _WORDS[finding.verdict] if finding.verdict != "same" or finding.shown else NOT_SHOWN
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
