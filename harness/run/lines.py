"""Prints plain lines about runs: the result of each, and about how long the rest takes."""

import sys
import time
from pathlib import Path
from typing import Any, TextIO

from harness.experiment.description import Run
from harness.files import read_json
from harness.results.entry import ENTRY_FILE
from harness.results.failure import told_failure
from plots.metrics import DASH, by_name, marks, show

__all__ = ["Lines"]

_SHOWN = ("latency_steady_p50_ms", "latency_migrating_max_ms", "migration_s")


class Lines:
    """Writes one line per run to `out`, standard error by default; `total` runs are expected."""

    def __init__(self, total: int, out: TextIO | None = None):
        self._total, self._out = total, out or sys.stderr
        self._number = self._carried_out = 0
        self._start = time.monotonic()

    def begin(self, run: Run) -> None:
        """Counts a run that begins."""
        self._number += 1

    def skipped(self, run: Run) -> None:
        """Says that a run was done before."""
        self._number += 1
        self._say(run, "done before")

    def note(self, text: str) -> None:
        """Writes a sentence."""
        self._out.write(f"{text}\n")
        self._out.flush()

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """Says nothing: a line per run is enough."""

    def end(self, run: Run, folder: Path) -> None:
        """Prints a run's result, and how long the remaining runs take if they are like the finished ones."""
        self._carried_out += 1
        entry = read_json(folder / ENTRY_FILE)
        left = (time.monotonic() - self._start) / self._carried_out * (self._total - self._number)
        rest = f"; about {left / 60:.0f} min left" if self._number < self._total else ""
        self._say(run, f"{_summary(entry) if entry else 'failed'}{rest}")
        if not entry or entry["verdict"] != "valid":
            self.note(told_failure(folder) if not entry else " ".join(entry["reasons"]))

    def _say(self, run: Run, text: str) -> None:
        self.note(f"{self._number}/{self._total} {run.folder}: {text}")


def _summary(entry: dict[str, Any]) -> str:
    found = [(metric.label, show(metric.value(entry), metric.unit)) for metric in map(by_name, _SHOWN)]
    numbers = ", ".join(f"{label} {text}" for label, text in found if text != DASH)
    told = ", ".join(marks(entry))
    return f"{entry['verdict']}{f' ({told})' if told else ''}, {numbers}"
