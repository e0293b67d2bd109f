"""The page of a comparison of engines: one HTML file with its conclusions, its table and its figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.files import write_text
from harness.report.page import Cell, Column, inline, render
from harness.suites.engines.said import CANNOT, PROMISES, summary
from plots.engines import Drawn, write_figures
from plots.figure import element, where_measured
from plots.metrics import Unit, show

__all__ = ["COUNTS", "FIGURES", "NAMES", "write_page"]

NAMES = ("keys", "engine", "rescale", "verdict")
# heading of a column -> name in a row, unit, meaning
FIGURES: dict[str, tuple[str, Unit, str]] = {
    "steady p50": ("p50_ms", "ms", "Latency of the records that no rescale touches, its median."),
    "p99": ("p99_ms", "ms", "The same, its 99th percentile."),
    "p99.9": ("p999_ms", "ms", "The same, its 99.9th percentile."),
    "peak": ("peak_ms", "ms", "Highest latency of a record from the rescale's command on."),
    "slow": ("slow_s", "s", "How long latency was above twice its steady p99."),
    "longest gap": ("gap_s", "s", "Longest time without any result around the rescale."),
    "until done": ("held_s", "s", "From the command until the new number of workers gives results."),
}
COUNTS = {
    "lost": ("lost", "Results that are missing, by the oracle."),
    "doubled": ("doubled", "Records that were counted twice, by the oracle."),
    "repeats": ("repeats", "Results that came again with what they said before."),
    "CPU s per M": ("cpu_s_per_million", "Processor time of the engine's processes for a million records."),
    "MiB": ("memory_mib", "Highest resident memory of the engine's processes."),
}


def write_page(result: Mapping[str, Any], folder: Path, figures: str) -> list[Drawn]:
    """Writes engines.html, and the figures into a folder beside it, and returns these.

    Args:
        result: as engines.json holds it.
        folder: for the page.
        figures: name of the figures' folder.
    """
    drawn = write_figures(result, folder / figures)
    content = {
        "identity": where_measured(result["environment"]).replace(", ", " · "),
        "summary": summary(result["rows"]),
        "conclusions": result["conclusions"],
        "columns": _columns(),
        "rows": [{"id": "", "withheld": row["verdict"] != "valid", "cells": _cells(row)} for row in result["rows"]],
        "figures": [
            (one.name, one.title, one.caption, inline(element(svg), one.name)) for one, svg in drawn
        ],
        "promises": list(PROMISES.items()),
        "cannot": CANNOT,
    }  # fmt: skip
    write_text(folder / "engines.html", render("engines.html.j2", content))
    return [one for one, _ in drawn]


def _columns() -> list[Column]:
    words = [Column(name, words=name != "keys") for name in NAMES]
    figures = [Column(name, meaning, "lower") for name, (_, _, meaning) in FIGURES.items()]
    return [*words, *figures, *(Column(name, meaning, "lower") for name, (_, meaning) in COUNTS.items())]


def _cells(row: Mapping[str, Any]) -> Sequence[Cell]:
    engine = Cell.of_mechanism(row["engine"], row["engine"])
    words = [Cell.of_word(str(row[name] or "-")) for name in NAMES[2:]]
    figures = [_cell(row[name], show(row[name], unit)) for name, unit, _ in FIGURES.values()]
    counts = [_cell(row[name], "-" if row[name] is None else f"{row[name]:,.0f}") for name, _ in COUNTS.values()]
    return [Cell(f"{row['keys']:,}", row["keys"]), engine, *words, *figures, *counts]


def _cell(value: float | None, shown: str) -> Cell:
    return Cell(shown, "" if value is None else value)
