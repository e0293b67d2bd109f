"""What is told of a run: each second to its parent, and lines about its result and the time that the rest takes."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from harness.experiment.description import Run
from harness.files import read_json
from harness.lab.child import Cancelled, Parent
from harness.lab.waiting import wait_for
from harness.results.entry import ENTRY_FILE
from harness.results.place import told_failure
from harness.run.recorder import Recorder
from plots.metrics import DASH, by_name, remarks, show

_OVER = "checking"
_RATE_OVER_S = 0.5  # a rate over less would be that of an epoch or of none


def line_of(
    recorder: Recorder, phase: str, *, rate: float | None, due: int | None, commits: float | None = None
) -> dict[str, Any]:
    """Returns the line of a second, as JSON has it; what is not known yet is None.

    Args:
        recorder: what has happened so far.
        phase: what the run does; when it is checked nothing is processed any more.
        rate: records applied per second, over the last second.
        due: records whose scheduled time has come; None where nothing is scheduled.
        commits: of all workers per second, in real time; None in micro-batches.
    """
    last, records = recorder.last, recorder.records
    over = phase == _OVER  # the line stays the last one while the oracle is at work
    return {
        "phase": phase,
        "records": records,
        "rate": None if over else rate,
        "lag": None if over or due is None else max(0, due - records),
        "epoch": last.get("epoch"),
        "epoch_ms": last.get("ms", {}).get("total"),
        "turns_per_s": None if over else commits,
        "phases_ms": {name: ms for name, ms in last.get("ms", {}).items() if name != "total"},
        "misplaced": last.get("misplaced"),
        "moved_bins": recorder.moved_bins,
        "moved_bytes": recorder.moved_bytes,
        "planned_bins": recorder.planned_bins,
        "planned_bytes": recorder.planned_bytes,
        "latency_ms": {} if over else recorder.latency_now(),
    }


@dataclass
class RunProgress:
    """What the watcher receives: the phase, and once a second the numbers of the last second.

    `due` returns how many records are due by now, once the load is scheduled.
    """

    recorder: Recorder
    parent: Parent = field(default_factory=Parent)
    phase: str = "starting"
    due: Callable[[], int] | None = None
    _last_line_s: float = 0.0
    _counted: tuple[float, int, int] | None = None
    _rate: float | None = None
    _commits: float | None = None

    def say(self, phase: str) -> None:
        """Enters a phase."""
        self.phase = phase
        self._last_line_s = 0.0
        self.beat()

    def beat(self) -> None:
        """Tells the numbers when a second has passed; raises Cancelled when the run is cut off."""
        if self.parent.gone.is_set():
            raise Cancelled
        if time.monotonic() - self._last_line_s < 1.0:
            return
        self._last_line_s = time.monotonic()
        rate, due = self._measured(), self.due() if self.due else None
        self.parent.tell(line_of(self.recorder, self.phase, rate=rate, due=due, commits=self._commits))

    def _measured(self) -> float | None:
        """Returns records applied per second since the last line; that of the last line if it was just sent."""
        before, now = self._counted, (time.monotonic(), self.recorder.records, self.recorder.commits)
        if before is None or now[0] - before[0] >= _RATE_OVER_S:
            self._rate = None if before is None else (now[1] - before[1]) / (now[0] - before[0])
            self._commits = None if before is None or not now[2] else (now[2] - before[2]) / (now[0] - before[0])
            self._counted = now
        return self._rate

    def wait_for(self, done: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Waits until done(), telling meanwhile; raises StateError that names `what` when the deadline passes."""
        wait_for(done, what, deadline_s, tend=self.beat)


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
    told = ", ".join(remarks(entry))
    return f"{entry['verdict']}{f' ({told})' if told else ''}, {numbers}"
