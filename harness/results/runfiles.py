"""The files that a run has left, read when asked for; a query of two stages has left epochs and events of each."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.experiment.schedules import SECOND
from harness.files import read_json, read_lines
from harness.measure.cells import Cells, read_cells, read_epochs
from harness.measure.cpu import Taken, idle_share, taken
from harness.measure.migrations import Migration, Moved, migrations_of, moved, of_stages
from harness.measure.windows import Timeline, WarmUp, tag_records, timeline, warm_up
from harness.results.epochs import groups_of
from impls.worker.cells import INTERVAL_US


@dataclass(frozen=True)
class RunFiles:
    """The files of a run's folder, read when asked for; a file that is missing reads as empty."""

    folder: Path

    @cached_property
    def run(self) -> dict[str, Any]:
        """Parameters of the run."""
        return read_json(self.folder / "run.json")

    @cached_property
    def load(self) -> dict[str, Any]:
        """The schedule."""
        return read_json(self.folder / "load.json")

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """The epoch log."""
        return read_epochs(self.folder / "epochs.jsonl")

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The events."""
        return read_lines(self.folder / "events.jsonl")

    @cached_property
    def memory(self) -> list[dict[str, Any]]:
        """The memory samples."""
        return read_lines(self.folder / "memory.jsonl")

    @cached_property
    def taken(self) -> Taken | None:
        """What was taken from the run's CPU time, from the end of its warm-up to the end of its load."""
        return taken(self.memory, *self._measured)

    @property
    def cpu_idle(self) -> float | None:
        """Share of the machine's CPU time that nobody used in the same time."""
        found = idle_share(self.memory, *self._measured)
        return None if found is None else round(found, 3)

    @property
    def _measured(self) -> tuple[int, int]:
        begin = self.start_us if self.warm_up.end_us is None else self.warm_up.end_us
        return begin, max((event["at_us"] for event in self.events if event["kind"] == "load_end"), default=begin)

    @cached_property
    def cells(self) -> Cells:
        """The latency cells, without those of what was sent before the load."""
        cells = read_cells(self.folder / "cells.jsonl")
        if self.mode == REAL_TIME:  # an epoch's commits end at several times, of which only the last is known
            cells = cells.done_in_time()
        if not self.load.get("nexmark", {}).get("preload"):
            return cells
        return cells.take(cells.interval >= self.start_us // INTERVAL_US)

    @property
    def mode(self) -> str:
        """How Spark ran the query."""
        return str(self.run.get("mode", MICRO_BATCH))

    @cached_property
    def groups(self) -> dict[str, list[dict[str, Any]]]:
        """The epochs by what they are."""
        return groups_of(self.epochs, self.migrations, self.warm_up.end_us)

    @cached_property
    def start_us(self) -> int:
        """Begin of the load, wall clock; that of the first epoch for a run that had no load."""
        return int(self.load.get("start_us", self.epochs[0]["begin_us"] if self.epochs else 0))

    @cached_property
    def second(self) -> "RunFiles | None":
        """The files of the query's second stage, epochs and events alone; None where the query has one stage."""
        return RunFiles(self.folder / SECOND) if (self.folder / SECOND).is_dir() else None

    @cached_property
    def migrations(self) -> list[Migration]:
        """The migrations, in order; of two stages, from the first one's begin to the end of the later one."""
        return [one for one, _ in self._stages_migrations]

    @cached_property
    def _stages_migrations(self) -> list[tuple[Migration, list[Migration]]]:
        own = migrations_of(self.events, self.epochs)
        return of_stages(own, [] if self.second is None else self.second.migrations)

    def moved(self, number: int) -> Moved:
        """Returns what a migration has moved, in both stages where there are two."""
        one, others = self._stages_migrations[number]
        what, second = moved(one, self.events, self.epochs), self.second
        if second is not None:
            what = sum((moved(other, second.events, second.epochs) for other in others), what)
        return what

    @property
    def lmdb_bytes(self) -> int:
        """Most bytes that the state has had on disk."""
        return max((int(line["lmdb_bytes"]) for line in self.epochs), default=0)

    @property
    def stages(self) -> list["RunFiles"]:
        """The files of each stage of the query; those of its only one are the run's."""
        return [self, *([] if self.second is None else [self.second])]

    @cached_property
    def warm_up(self) -> WarmUp:
        """When the run had warmed up."""
        first = self.migrations[0].begin_us if self.migrations else None
        return warm_up(self.epochs, self.start_us, first, int(self.load.get("lead_in_s", 0) * 1e6))

    @cached_property
    def tags(self) -> NDArray[np.int8]:
        """The tag of each row of `cells`."""
        return tag_records(self.cells, self.migrations, self.warm_up.end_us)

    @cached_property
    def timeline(self) -> Timeline:
        """The 250 ms timeline."""
        return timeline(self.cells, self.tags)
