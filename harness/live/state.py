"""What is known of an experiment's runs while they go on: what the terminal shows and the metrics endpoint answers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.experiment.description import Run
from harness.files import read_json
from harness.results.entry import ENTRY_FILE

__all__ = ["KnownRun", "LiveState"]


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run: the line of its last second while it goes on, see `harness.run.progress.line_of`; then its entry.

    The entry is that of result.json; of a run that failed it is empty.
    """

    run: Run
    line: dict[str, Any] = field(default_factory=dict)
    entry: dict[str, Any] = field(default_factory=dict)


class LiveState:
    """The run under way and those that have ended; other threads may read it at any time, as values are replaced whole.

    Attributes:
        now: the run under way; None between two runs.
        ended: the runs that have ended, in that order.
    """

    def __init__(self) -> None:
        self.now: KnownRun | None = None
        self.ended: tuple[KnownRun, ...] = ()

    def begin(self, run: Run) -> None:
        """A run begins."""
        self.now = KnownRun(run)

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """A second of a run has passed."""
        self.now = KnownRun(run, line)

    def end(self, run: Run, folder: Path) -> dict[str, Any]:
        """A run has ended; returns its entry, an empty one if it failed.

        Raises:
            ValueError: its entry is broken.
        """
        entry = read_json(folder / ENTRY_FILE)
        self.now, self.ended = None, (*self.ended, KnownRun(run, entry=entry))
        return entry
