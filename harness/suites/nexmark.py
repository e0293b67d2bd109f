"""`./inv nexmark`: every query across a rescale, checked against its oracle, beside its twin on Spark's own state."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from harness.experiment.description import Experiment
from harness.experiment.make import lacks_twin, make_experiment
from harness.experiment.parameters import PARAMETERS
from harness.files import RESULTS, read_json, write_json, write_text
from harness.options import ending, parse_list, parse_names
from harness.options.declared import read_given
from harness.report.terminal import table_lines, terminal, terminal_table
from harness.suites.bench import Suite, measure_in_turn
from harness.suites.options import NEXMARK_GROUPS, NEXMARK_Q11_S, NEXMARK_QUICK, NEXMARK_S
from impls import catalog
from impls.operators.nexmark import QUERIES
from plots.metrics import Unit, marks, show

# heading of a column -> name in a row, unit
_FIGURES: dict[str, tuple[str, Unit]] = {
    "steady p50": ("p50_ms", "ms"),
    "steady p99": ("p99_ms", "ms"),
    "peak": ("peak_ms", "ms"),
    "peak ratio": ("peak_ratio", "x"),
    "duration": ("duration_s", "s"),
    "moved": ("bytes", "B"),
}
_NAMES = ("query", "dialect", "mechanism", "verdict")
COLUMNS = (*_NAMES, *_FIGURES)


def rows_of(query: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row per run of a query's result: numbers in ms, s and bytes, None where there is none."""
    rows = []
    for entry in result["runs"]:
        steady = entry["latency_ms"]["steady"]
        found = {**next(iter(entry["migrations"]), {}), "p50_ms": steady["p50"], "p99_ms": steady["p99"]}
        verdict = ", ".join([entry["verdict"], *marks(entry)])
        names = dict(zip(_NAMES, (query, QUERIES[query].dialect, entry["mechanism"], verdict), strict=True))
        rows.append({**names, **{name: found.get(name) for name, _ in _FIGURES.values()}, "reasons": entry["reasons"]})
    return rows


def _texts(row: Mapping[str, Any]) -> list[str]:
    return [*(row[name] for name in _NAMES), *(show(row[name], unit) for name, unit in _FIGURES.values())]


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the rows for a terminal."""
    return terminal_table(COLUMNS, map(_texts, rows), _NAMES)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows as a Markdown table."""
    lines = [
        *table_lines(COLUMNS, map(_texts, rows), "llllr"),
        *(f"\n{told}" for told in (_of_two_stages(rows), against_native(rows)) if told),
    ]
    return "\n".join(lines) + "\n"


def _of_two_stages(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence about the rows whose latencies are those of a first stage, "" where there are none."""
    found = [row for row in rows if QUERIES[row["query"]].second and not row["mechanism"].startswith(_OTHERS)]
    names = ", ".join(dict.fromkeys(row["query"] for row in found))
    if not names:
        return ""
    return (
        f"Latencies of queries of two stages ({names}) end when the first one has applied the event; what a rescale "
        "moves, and how long it takes, is that of both."
    )


def against_native(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence: steady p50 over that of Spark's own query, as a median over the queries that both have."""
    p50 = {(row["query"], row["mechanism"]): row["p50_ms"] for row in rows if row["verdict"] == "valid"}
    both = [query for query, name in p50 if name == _LIVE and p50.get((query, _NATIVE)) and not QUERIES[query].second]
    ratios = [p50[query, _LIVE] / p50[query, _NATIVE] for query in both if p50[query, _LIVE] is not None]
    if not ratios:
        return ""
    low, middle, high = min(ratios), median(ratios), max(ratios)
    return (
        f"Steady p50 of {_LIVE} is {middle:.2f} times that of {_NATIVE} (median of {len(ratios)} queries of one stage, "
        f"{low:.2f} to {high:.2f})."
    )


_LIVE = "megaphone-batched"
_NATIVE = "native-repartition"
_OTHERS = tuple(catalog.baselines())
_TABLE = "nexmark.json"
_PASSED_ON = ["mode", "profile", "rate", "fault", "seed", "bins", "duration", "cluster", "netem", "batch", "slots"]


def suite_from(options: Mapping[str, Any]) -> Suite:
    """Returns what the options ask for; raises UsageError for bad ones."""
    groups = parse_names(str(options.get("group") or ""), NEXMARK_GROUPS, "group")
    named = [
        *parse_list(str(options.get("query") or "")),
        *(query for name in groups for query in NEXMARK_GROUPS[name]),
    ]
    shared: dict[str, Any] = {"duration_s": NEXMARK_S, **(NEXMARK_QUICK if options.get("quick") else {})}
    values = {name: options.get(name) or None for name in _PASSED_ON}
    shared |= read_given(PARAMETERS, values)
    shared["workers"] = options.get("workers") or "2:4"
    longer_s = {"q11": NEXMARK_Q11_S[bool(options.get("quick"))]} if values["duration"] is None else {}

    def of(query: str) -> dict[str, Any]:
        return {**shared, "duration_s": longer_s[query]} if query in longer_s else shared

    return Suite(
        "nexmark", tuple(_experiment(query, options.get("mechanism"), of(query)) for query in named or QUERIES)
    )


def _experiment(query: str, mechanism: str | None, shared: Mapping[str, Any]) -> Experiment:
    """Returns a query's experiment: Spark's restart is in it where it can, unless mechanisms are named."""
    live = make_experiment(workload="nexmark", query=query, mechanism=mechanism or _LIVE, **shared)
    if mechanism or live.fault is not None or lacks_twin(live):
        return live
    return make_experiment(workload="nexmark", query=query, mechanism=f"{_LIVE},{_NATIVE}", **shared)


def measured(suite: Suite, output: Path, *, force: bool = False, again: int = 0) -> tuple[Path, int]:
    """Runs what is missing of a suite and writes its table, see `harness.suites.bench.measure_in_turn`."""
    rows: list[dict[str, Any]] = []

    def take(folder: Path, number: int, path: Path) -> None:
        rows.extend(rows_of(suite.experiments[number].query, read_json(path / "result.json")))
        write_json(folder / _TABLE, rows)
        write_text(folder / "nexmark.md", markdown(rows))

    return measure_in_turn(suite, suite.experiments, output, take, force=force, again=again)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of a result's table, see `rows_of`; none where the suite was cut off before it."""
    path = folder / _TABLE
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


@ending()
def run_nexmark(options: Mapping[str, Any]) -> int:
    """Runs the queries, prints their table and the result's path, and returns the exit code as `./inv bench` does."""
    suite, output = suite_from(options), Path(options.get("output") or RESULTS)
    folder, code = measured(suite, output, force=bool(options.get("force")))
    console = terminal()
    rows = read_rows(folder)
    console.print(table(rows))
    for told in filter(None, (_of_two_stages(rows), against_native(rows))):
        console.print(told)
    sys.stdout.write(f"{folder}\n")
    return code
