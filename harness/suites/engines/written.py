"""The files of a comparison of engines: engines.json, engines.md and a page, and the small reference of all three."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.files import ROOT, read_json, write_json, write_text
from harness.report.markdown import table_lines
from harness.suites.engines.page import COUNTS, FIGURES, NAMES, write_page
from harness.suites.engines.said import CANNOT, conclusions, guarantees, summary
from plots.engines import Drawn
from plots.figure import where_measured
from plots.metrics import show

__all__ = ["COLUMNS", "RESULT_FILE", "texts", "write_reference", "write_result"]

COLUMNS = (*NAMES, *FIGURES, *COUNTS)
RESULT_FILE = "engines.json"
_RESCALES = (*NAMES, "peak", "slow", "longest gap", "until done")
_STEADY = ("keys", "engine", "steady p50", "p99", "p99.9", *COUNTS)
_MARKDOWN, _DRAWN = "engines.md", "figures"
_REFERENCE = ROOT / "results" / "reference" / "engines"


def texts(row: Mapping[str, Any]) -> list[str]:
    """Returns what a row of the table shows."""
    names = [f"{row['keys']:,}", *(str(row[name] or "-") for name in NAMES[1:])]
    counts = ["-" if row[name] is None else f"{row[name]:,.0f}" for name, _ in COUNTS.values()]
    return [*names, *(show(row[name], unit) for name, unit, _ in FIGURES.values()), *counts]


def write_result(folder: Path, rows: Sequence[dict[str, Any]], timelines: Sequence[dict[str, Any]]) -> None:
    """Writes what is known so far into a result folder.

    Args:
        folder: with experiment.json.
        rows: of the table.
        timelines: one of each run that may be compared.
    """
    here = read_json(folder / "experiment.json")["environment"]
    result = {"environment": here, "rows": rows, "timelines": timelines, "conclusions": conclusions(rows)}
    write_json(folder / RESULT_FILE, result)
    drawn = write_page(result, folder, _DRAWN)
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
    return "\n".join([*lines, "What each engine promises, and when it writes:", "", *guarantees(), "", CANNOT, ""])


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
