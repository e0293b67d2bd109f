"""Runs a list of runs one after another, each in a separate process: for an experiment, a sweep, or variants."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.experiment.description import Run
from harness.results.failure import FAILURE_FILE, how_it_ended, told_failure, write_failure
from harness.run.child import RunProcess
from harness.run.disturb import disturbed
from impls.errors import UsageError

__all__ = ["NamedRun", "Watcher", "run_all"]


@dataclass(frozen=True)
class NamedRun(Run):
    """A run whose folder has a name of its own, as it is one of several variants of an experiment."""

    place: str = ""

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return self.place


class Watcher(Protocol):
    """Receives what happens; `harness.live.view.LiveView` is one."""

    def begin(self, run: Run) -> None:
        """A run begins."""

    def skipped(self, run: Run) -> None:
        """A run was done before."""

    def note(self, text: str) -> None:
        """Something is to be said."""

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """A second of a run has passed."""

    def end(self, run: Run, folder: Path) -> None:
        """A run has ended."""


def run_all(runs: Sequence[Run], folder: Path, view: Watcher) -> None:
    """Runs what is not done yet; broker and Spark of the next run start while the oracle checks the one before.

    Args:
        runs: in this order; each has `folder / run.folder` with its run.json.
        folder: parent of the runs' folders.
        view: receives what happens.

    Raises:
        UsageError: a run was refused for bad input.
    """
    left = deque(runs)
    ready: RunProcess | None = None

    def prepare_next() -> None:
        nonlocal ready
        if ready is None and left and not (folder / left[0].folder / "done").exists():
            ready = RunProcess(folder / left[0].folder)

    try:
        while left:
            run = left.popleft()
            if (folder / run.folder / "done").exists():
                view.skipped(run)
                continue
            process, ready = ready or RunProcess(folder / run.folder), None
            if not _run_one(run, process, view, prepare_next):
                view.note(f"{run.folder}: its fault has ended it; it is resumed")
                _run_one(run, RunProcess(folder / run.folder), view, prepare_next)
    finally:
        if ready is not None:
            ready.end()


def _run_one(run: Run, process: RunProcess, view: Watcher, prepare_next: Callable[[], None]) -> bool:
    """Runs one run; returns False when its fault has ended its process, which can then be resumed."""
    view.begin(run)
    error: str | None = None
    (process.folder / FAILURE_FILE).unlink(missing_ok=True)
    before = disturbed(process.folder)
    try:
        process.go()
        for line in process.lines():
            error = line.get("error", error)
            view.progress(run, line)
            if line.get("phase") == "checking":
                prepare_next()
        code = process.wait()
    finally:
        process.end()
    if code and code != 2 and disturbed(process.folder) and not before:
        return False
    if code:
        write_failure(process.folder, error or how_it_ended(code))
    view.end(run, process.folder)
    if code == 2:
        raise UsageError(told_failure(process.folder))
    return True
