"""Draws again everything that is drawn from a finished result."""

import sys
from pathlib import Path

from harness.report.report import write_report
from harness.results.summary import write_result
from plots.figures import write_all

__all__ = ["redraw"]


def redraw(folder: str) -> int:
    """Writes result.json, figures and report of a result folder again; returns the exit code."""
    path = Path(folder)
    if not (path / "experiment.json").exists():
        sys.stderr.write(f"{folder} is not a result folder: it has no experiment.json.\n")
        return 2
    write_result(path)
    write_all(path)
    sys.stdout.write(f"{write_report(path, drawn=True)}\n")
    return 0
