"""The history of measures: one line of JSON per commit, and a page with their trend."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from harness.files import read_lines, write_text
from plots.trend import draw_trend

__all__ = ["append", "line_of"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trend</title><style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}}
svg{{max-width:100%;height:auto}}</style></head>
<body><h1>Trend</h1><p>Medians of the runs of each commit, in the order in which they were measured. Only points of one
machine can be compared.</p>{figures}</body></html>
"""


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
    _write_page(path)


def _write_page(path: Path) -> Path:
    """Writes trend.html beside a history and returns its path."""
    page = path.with_name("trend.html")
    write_text(page, _PAGE.format(figures="".join(draw_trend(read_lines(path)))))
    return page
