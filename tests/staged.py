"""NEXMark's queries without Spark and Kafka, those of two stages as well, the second of which reads the first."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timed import BINS, TimedRun

from impls.driver.epochs import EpochRecord
from impls.operators.nexmark import QUERIES, SecondStage, make
from impls.operators.timed import clock_of
from impls.protocol.eventtime import EventClock


@dataclass
class SecondRun(TimedRun):
    """The second stage: its watermark is that up to which the first one has sent all, and this one has read it."""

    first: TimedRun | None = None
    read: int = 0

    def clock(self) -> EventClock | None:
        return clock_of(self.operator, BINS, linked=True)

    def follow(self) -> None:
        """Runs an epoch on what the first stage has sent since the last one."""
        assert isinstance(self.operator, SecondStage)
        assert self.first is not None
        found = self.first.results()[self.read :]
        self.read += len(found)
        key = self.operator.key
        self.epoch([(0, row[key].encode() if isinstance(row[key], str) else row[key], row) for row in found])
        clock, of_first = self.controller.clock, self.first.controller.clock
        assert clock is not None
        assert of_first is not None
        if of_first.sent is not None:
            clock.reach(of_first.sent)


@dataclass
class TwoStages:
    """As a TimedRun of one query: what is done is done to both stages."""

    runs: tuple[TimedRun, SecondRun]
    last: list[Any] = field(default_factory=list)

    def epoch(self, rows: Sequence[Any] = ()) -> EpochRecord:
        record = self.runs[0].epoch(rows)
        self.runs[1].follow()
        return record

    def again(self, rows: Sequence[Any]) -> None:
        self.runs[0].again(rows)

    def move(self, goal: Sequence[int]) -> None:
        for run in self.runs:
            run.move(goal)

    def restart(self) -> None:
        for run in self.runs:
            run.restart()

    def lose(self, worker: int) -> None:
        for run in self.runs:
            run.lose(worker)

    def settle(self) -> None:
        self.runs[0].settle()
        for _ in range(3):  # results, then the watermark behind them, then the timers below it
            self.runs[1].follow()
        self.runs[1].settle()

    @property
    def records(self) -> list[EpochRecord]:
        return [record for run in self.runs for record in run.records]

    @property
    def size(self) -> int:
        return sum(run.size for run in self.runs)

    def results(self) -> list[Any]:
        return self.runs[1].results()

    def multiset(self) -> Any:
        return self.runs[1].multiset()

    def total(self, name: str) -> int:
        return sum(run.total(name) for run in self.runs)


def query_run(folder: Path, name: str, *, partitions: int = 1, **options: Any) -> TimedRun | TwoStages:
    """Starts a query, of one stage or two."""
    second = QUERIES[name].second
    run = TimedRun(folder / "first" if second else folder, make(name, partitions=partitions), **options)
    return run if second is None else TwoStages((run, SecondRun(folder / "second", second(), first=run, **options)))
