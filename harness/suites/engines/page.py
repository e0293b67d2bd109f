"""What a comparison of engines writes: engines.json, engines.md, a page, and the sentences beside the table."""

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.files import ROOT, read_json, write_json, write_text
from harness.report.page import Cell, Column, inline, render
from harness.report.terminal import table_lines
from harness.suites.engines.floor import FLOOR, over_floor
from plots.engines import Drawn, load_of, loads_of, write_engine_figures
from plots.figure import element, where_measured
from plots.metrics import Unit, show

_OURS = "megaphone-batched, real time"
_PROMISES = {
    "this runtime": (
        "exactly once in its state; results at least once, a repeat has the number of the first; changelog written "
        "with every commit, snapshots in the background"
    ),
    "native-real-time": (
        "exactly once in its state, results at least once; what came in since the begin of the batch (--batch) comes "
        "again after a restart"
    ),
    "flink-adaptive, flink-savepoint": (
        "exactly once in its state, results at least once as the sink is; checkpoint every checkpoint_s (10 s)"
    ),
    "kafka-streams-*": (
        "at least once in state and results by default (guarantee=exactly_once_v2 for exactly once); commit every "
        "commit_ms (30 s); changelog topic in Kafka"
    ),
    FLOOR: "nothing: one process with a dictionary, which a restart reads anew; it is what Kafka and its clients cost",
}
CANNOT = (
    "What this comparison cannot show: one machine of few cores, broker and generator beside the engine, so no engine "
    "has its usual room; one broker without replicas, and local disks in place of object stores; a count per key, the "
    "smallest state there is per key; no engine was tuned beyond the settings named."
)


_BY_RESULTS = (
    "Latencies under a query are those of its results, from the time at which the event was due that completes each "
    "(q8: the later of person and auction; q5: the one that ends the window in the partition that is last)."
)
_DRAINED = (
    "Before Spark repartitions state, it must end the batch that the query's stop has cut off, with the old number of "
    "workers: that time is no work of the repartition, and stands for itself under `of it drain`."
)


def notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what a reader of rows must know: what latencies and times are, and what the comparison cannot show."""
    by_results, drained = any(row.get("query") for row in rows), any(row.get("drain_s") is not None for row in rows)
    return [*([_BY_RESULTS] if by_results else []), *([_DRAINED] if drained else []), CANNOT]


def guarantees() -> list[str]:
    """Returns a line of a list for each engine."""
    return [f"- {engine}: {text}." for engine, text in _PROMISES.items()]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence: from which to which ratio this runtime goes over all engines and numbers of keys."""
    found = [ratios for _, _, ratios in _compared(rows)]
    spans = {name: [ratios[name].middle for ratios in found if name in ratios] for name in _WORDS}
    told = [f"its {_WORDS[name]} {_span(span)}" for name, span in spans.items() if span]
    return f"This runtime against each other engine: {', '.join(told)}." if told else ""


def _span(ratios: Sequence[float]) -> str:
    """Returns from which to which ratio a figure goes; where theirs is 0 and ours is not, there is none."""
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    parts = [f"{min(known):.2f} to {max(known):.2f} times theirs"] if known else []
    return ", or ".join([*parts, *(["above 0 where theirs is 0"] if len(known) < len(ratios) else [])])


def conclusions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns sentences: at each number of keys what `_WORDS` names of this runtime over that of each other.

    Medians over rescales and rounds, and in brackets how far apart they can be: the lowest over the highest to the
    highest over the lowest. Runs that are not valid, or were made on a busy machine, are left out.
    """
    return [
        f"{load}, this runtime against {engine}: "
        + ", ".join(f"{ratio} its {_WORDS[name]}" for name, ratio in ratios.items())
        + "."
        for load, engine, ratios in _compared(rows)
    ]


_WORDS = {
    "peak_ms": "highest latency in a rescale", "slow_s": "slow time in a rescale", "p50_ms": "steady p50",
    "p99_ms": "steady p99", "cpu_s_per_million": "processor time",
}  # fmt: skip


class _Ratio(NamedTuple):
    """This runtime's figure over another engine's: of the medians, and how far apart they can be."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        """Returns the ratio in words, which there is none of where the other engine's figure is 0."""
        if math.isinf(self.middle):
            return "above 0 against 0 of"
        high = "more" if math.isinf(self.high) else f"{self.high:.2f}"
        spread = f" ({self.low:.2f} to {high})" if self.low < self.high else ""
        return f"{self.middle:.2f} times{spread}"


def _compared(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, dict[str, _Ratio]]]:
    """Yields load, engine and this runtime's figures over the engine's, where there are any."""
    for load in loads_of(rows):
        here = [row for row in rows if load_of(row) == load and row["verdict"] == "valid"]
        for engine in sorted({row["engine"] for row in here if not row["engine"].startswith((_OURS, FLOOR))}):
            fault = engine[len(engine.partition(" with ")[0]) :]
            ours, theirs = ([row for row in here if row["engine"] == name] for name in (_OURS + fault, engine))
            ratios = {name: value for name in _WORDS if (value := _ratio(ours, theirs, name)) is not None}
            if ratios:
                yield load, engine, ratios


def _ratio(ours: Iterable[Mapping[str, Any]], theirs: Iterable[Mapping[str, Any]], name: str) -> _Ratio | None:
    """Returns the ratio of a figure, infinite where the other engine's is 0; None where one of the two has none."""
    own, others = ([row[name] for row in rows if row.get(name) is not None] for rows in (ours, theirs))
    if not own or not others:
        return None
    return _Ratio(_over(np.median(own), np.median(others)), _over(min(own), max(others)), _over(max(own), min(others)))


def _over(own: Any, other: Any) -> float:
    return float(own / other) if other else math.inf if own else 1.0


NAMES = ("load", "engine", "rescale", "verdict")
AT_COMMIT = "at commit"
# heading of a column -> name in a row, unit, meaning
FIGURES: dict[str, tuple[str, Unit, str]] = {
    "steady p50": ("p50_ms", "ms", "Latency of the records that no rescale touches, its median."),
    "p99": ("p99_ms", "ms", "The same, its 99th percentile."),
    "p99.9": ("p999_ms", "ms", "The same, its 99.9th percentile."),
    "of floor": ("p50_floor", "x", "The steady p50 over that of the floor, which is what Kafka and its clients cost."),
    "lag": ("lag_ms", "ms", "Time until the generator sent a record, which is in every latency: its median."),
    "idle": ("cpu_idle", "share", "CPU time that nobody used; below 10 % records wait for a processor."),
    "peak": ("peak_ms", "ms", "Highest latency of a record from the rescale's command on."),
    "slow": ("slow_s", "s", "How long the median latency was above twice the steady p50."),
    "longest gap": ("gap_s", "s", "Longest time without any result around the rescale."),
    "until done": ("held_s", "s", "From the command until the new number of workers gives results."),
    "of it drain": (
        "drain_s",
        "s",
        "Of that, the batch that the stop has cut off, ended by the old number of workers.",
    ),
}
COUNTS = {
    "lost": ("lost", "Results that are missing, by the oracle."),
    "doubled": ("doubled", "Records that were counted twice, by the oracle."),
    "repeats": ("repeats", "Results that came again with what they said before."),
    "CPU s per M": (
        "cpu_s_per_million",
        "Processor time for a million records of the engine's processes and its driver, without broker and generator.",
    ),
    "% of floor": ("cpu_floor_percent", "The same over that of the floor, in percent."),
    "MiB": ("memory_mib", "Highest resident memory of the engine's processes."),
}


def _write_page(result: Mapping[str, Any], folder: Path, figures: str) -> list[Drawn]:
    """Writes engines.html, and the figures into a folder beside it, and returns these.

    Args:
        result: as engines.json holds it.
        folder: for the page.
        figures: name of the figures' folder.
    """
    drawn = write_engine_figures(result, folder / figures)
    content = {
        "identity": where_measured(result["environment"]).replace(", ", " · "),
        "summary": summary(result["rows"]),
        "conclusions": result["conclusions"],
        "columns": _columns(),
        "rows": [{"id": "", "withheld": row["verdict"] != "valid", "cells": _cells(row)} for row in result["rows"]],
        "figures": [
            (figure.name, figure.title, figure.caption, inline(element(svg), figure.name)) for figure, svg in drawn
        ],
        "promises": list(_PROMISES.items()),
        "cannot": " ".join(notes(result["rows"])),
    }  # fmt: skip
    write_text(folder / "engines.html", render("engines.html.j2", content))
    return [figure for figure, _ in drawn]


def _columns() -> list[Column]:
    words = [Column(name, words=name != "load") for name in NAMES]
    figures = [
        Column(name, meaning, "higher" if name == "idle" else "lower") for name, (_, _, meaning) in FIGURES.items()
    ]
    counts = [Column(name, meaning, "lower") for name, (_, meaning) in COUNTS.items()]
    return [*words, *figures, *counts, Column(AT_COMMIT, "Of this project, at which the row was measured.", words=True)]


def _cells(row: Mapping[str, Any]) -> Sequence[Cell]:
    engine = Cell.of_mechanism(row["engine"], row["engine"])
    words = [Cell.of_word(str(row[name] or "-")) for name in NAMES[2:]]
    figures = [_cell(row.get(name), show(row.get(name), unit)) for name, unit, _ in FIGURES.values()]
    counts = [_cell(row.get(name), _count(row.get(name))) for name, _ in COUNTS.values()]
    return [Cell(load_of(row), row["keys"]), engine, *words, *figures, *counts, Cell.of_word(_commit_of(row))]


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _cell(value: float | None, shown: str) -> Cell:
    return Cell(shown, "" if value is None else value)


COLUMNS = (*NAMES, *FIGURES, *COUNTS, AT_COMMIT)
RESULT_FILE = "engines.json"
_RESCALES = (*NAMES, "peak", "slow", "longest gap", "until done", "of it drain", AT_COMMIT)
_STEADY = ("load", "engine", "steady p50", "of floor", "p99", "p99.9", "lag", "idle", *COUNTS, AT_COMMIT)
_MARKDOWN, _DRAWN = "engines.md", "figures"
_REFERENCE = ROOT / "results" / "reference" / "engines"


def texts(row: Mapping[str, Any]) -> list[str]:
    """Returns what a row of the table shows."""
    names = [load_of(row), *(str(row[name] or "-") for name in NAMES[1:])]
    counts = [_count(row.get(name)) for name, _ in COUNTS.values()]
    return [*names, *(show(row.get(name), unit) for name, unit, _ in FIGURES.values()), *counts, _commit_of(row)]


def _commit_of(row: Mapping[str, Any]) -> str:
    return str(row.get("commit") or "-")[:12]


def write_result(folder: Path, rows: Sequence[dict[str, Any]], timelines: Sequence[dict[str, Any]]) -> None:
    """Writes what is known so far into a result folder.

    Args:
        folder: with experiment.json.
        rows: of the table.
        timelines: one of each run that may be compared.
    """
    here, rows = read_json(folder / "experiment.json")["environment"], over_floor(rows)
    result = {"environment": here, "rows": rows, "timelines": timelines, "conclusions": conclusions(rows)}
    write_json(folder / RESULT_FILE, result)
    drawn = _write_page(result, folder, _DRAWN)
    write_text(folder / _MARKDOWN, _markdown(result, drawn))


def _markdown(result: Mapping[str, Any], drawn: Sequence[Drawn]) -> str:
    where = f"{where_measured(result['environment']).capitalize()}."
    lines = ["# Engines compared", "", where, summary(result["rows"]), ""]
    lines += ["## Rescales", "", *_table(_RESCALES, result["rows"], "lllr"), ""]
    lines += ["## Steady state and correctness", "", *_table(_STEADY, result["rows"], "llr"), ""]
    lines += ["## This runtime against each engine", "", *(f"- {said}" for said in result["conclusions"]), ""]
    lines += ["## Figures", ""] if drawn else []
    for one in drawn:
        lines += [f"![{one.title}. {one.caption}]({_DRAWN}/{one.file}.svg)", ""]
    return "\n".join(
        [*lines, "What each engine promises, and when it writes:", "", *guarantees(), "", *notes(result["rows"]), ""]
    )


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], align: str) -> Iterator[str]:
    """Yields a table of some columns, which is as wide as a page; rows that are the same in them stand there once."""
    shown = [dict(zip(COLUMNS, texts(row), strict=True)) for row in rows]
    return table_lines(columns, dict.fromkeys(tuple(row[name] for name in columns) for row in shown), align)


def write_reference(folder: Path) -> None:
    """Copies a result's table and figures to the small results that go with the project."""
    _REFERENCE.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / _MARKDOWN, _REFERENCE / "README.md")
    result = read_json(folder / RESULT_FILE)
    result["environment"].pop("host", None)  # it says nothing to others
    del result["timelines"]  # the figures show them
    write_json(_REFERENCE / RESULT_FILE, result)
    shutil.rmtree(_REFERENCE / _DRAWN, ignore_errors=True)
    shutil.copytree(folder / _DRAWN, _REFERENCE / _DRAWN, ignore=shutil.ignore_patterns("*.png"))
