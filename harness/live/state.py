"""What is known of an experiment's runs while they go on: what the terminal shows and the metrics endpoint answers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.experiment.description import Run
from harness.files import read_json
from harness.results.entry import ENTRY_FILE

__all__ = ["CurrentRun", "LiveState", "RunEnd"]


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The run under way and the line of its last second, see `harness.run.progress.line_of`."""

    run: Run
    line: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run that has ended, and its entry of result.json; an empty one if it failed."""

    run: Run
    entry: dict[str, Any]


class LiveState:
    """The run under way and those that have ended; other threads may read it at any time, as values are replaced whole.

    Attributes:
        now: the run under way; None between two runs.
        ended: the runs that have ended, in that order.
    """

    def __init__(self) -> None:
        self.now: CurrentRun | None = None
        self.ended: tuple[RunEnd, ...] = ()

    def begin(self, run: Run) -> None:
        """A run begins."""
        self.now = CurrentRun(run)

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """A second of a run has passed."""
        self.now = CurrentRun(run, line)

    def end(self, run: Run, folder: Path) -> dict[str, Any]:
        """A run has ended; returns its entry, an empty one if it failed.

        Raises:
            ValueError: its entry is broken.
        """
        entry = read_json(folder / ENTRY_FILE)
        self.now, self.ended = None, (*self.ended, RunEnd(run, entry))
        return entry
