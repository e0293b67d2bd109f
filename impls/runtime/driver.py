"""One epoch after another: plan, one Spark job, observe. Called by Structured Streaming's foreachBatch."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.operators.base import Operator
from impls.runtime.cells import CELL
from impls.runtime.checkpoint import Checkpoint
from impls.runtime.commands import Command
from impls.runtime.controller import Controller, Event
from impls.runtime.hashing import worker_column
from impls.runtime.observation import Observation
from impls.runtime.order import Report, StepOrder
from impls.runtime.outbox import Output
from impls.runtime.plan import Pull, WrittenPlan
from impls.runtime.step import REPORT_SCHEMA, run_step

__all__ = ["Driver", "EpochRecord", "QueryEnded", "RelocationNeeded"]


class QueryEnded(Exception):  # noqa: N818 - a signal to the supervisor, not a failure
    """The query was asked to end and stands between two epochs."""


class RelocationNeeded(Exception):  # noqa: N818
    """The plan asks for a stop; the state is moved to the goal while the query is down."""

    def __init__(self, written: WrittenPlan, events: Sequence[Event]):
        super().__init__(f"stop before epoch {written.epoch}")
        self.written, self.events = written, events


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """All that is known of a finished epoch.

    Attributes:
        written: the plan it obeyed.
        begin_us, end_us: wall clock of foreachBatch's begin and end, µs.
        reports: one per worker, ascending.
        cells: latency cells by worker, dtype CELL.
        ms: between (end of the last epoch to begin of this one), plan, build, job, observe; milliseconds.
        misplaced: bins not at their goal after the epoch.
        events: migrations that began or ended with it.
    """

    written: WrittenPlan
    begin_us: int
    end_us: int
    reports: list[Report]
    cells: dict[int, NDArray[np.void]]
    ms: dict[str, float]
    misplaced: int
    events: tuple[Event, ...] = ()


class Driver:
    """Executes the controller's plans; everything durable it knows is in the checkpoint's journals."""

    def __init__(
        self,
        controller: Controller,
        checkpoint: Checkpoint,
        *,
        operator: Operator,
        output: Output,
        state_dir: str,
        on_epoch: Callable[[EpochRecord], None] | None = None,
    ):
        self.controller, self._checkpoint = controller, checkpoint
        self._operator, self._output, self._state_dir = operator, output, state_dir
        self._on_epoch = on_epoch or (lambda _record: None)
        self._last_end = time.perf_counter()
        self.ending = False
        self.last_epoch = self._planned = -1
        self._planning = threading.Lock()
        self._replay()

    def _replay(self) -> None:
        plans = [WrittenPlan.from_json(entry) for entry in self._checkpoint.read("plan")]
        observed = [Observation.from_json(entry) for entry in self._checkpoint.read("observed")]
        commands = [Command.from_json(entry) for entry in self._checkpoint.read("commands")]
        self.controller.replay(plans, observed, commands)
        self._written = {plan.epoch: plan for plan in plans[-2:]}
        self.last_epoch = self._planned = max((seen.epoch for seen in observed if not seen.relocated), default=-1)

    def command(self, kind: Literal["rescale", "rebalance"], goal: NDArray[np.int32], label: str) -> Command:
        """Makes a command durable, hands it to the controller and returns it; it holds from the next epoch planned."""
        with self._planning:
            command = Command.new(kind, goal, label, from_epoch=self._planned + 1)
            self._checkpoint.commands.append(command.to_json())
            self.controller.accept(command)
        return command

    def relocate(self, written: WrittenPlan, move: Callable[..., tuple[list[Pull], int]]) -> tuple[list[Pull], int]:
        """Moves all state to the goal while the query is down and makes that known to controller and journal."""
        order = self._order(written)
        goal = self.controller.goal.copy()
        moves, size = move(order, self.controller.location, goal)
        self._checkpoint.observed.append(Observation(written.epoch, relocated=True).to_json())
        self.controller.relocated(written.epoch)
        return moves, size

    def run_epoch(self, frame: DataFrame, epoch: int) -> None:
        """Runs one epoch; raises QueryEnded or RelocationNeeded instead of beginning it."""
        if self.ending:
            raise QueryEnded
        marks = [time.perf_counter()]
        begin_us = time.time_ns() // 1000
        written = self._plan(epoch)
        order = self._order(written)
        marks.append(time.perf_counter())
        job = self._job(frame, order)
        marks.append(time.perf_counter())
        rows = job.collect()
        marks.append(time.perf_counter())
        answers = [(Report.from_json(row["report"]), np.frombuffer(row["cells"], CELL)) for row in rows]
        reports = sorted((report for report, _ in answers), key=lambda report: report.worker)
        cells = {report.worker: found for report, found in answers}
        job_ms = (marks[3] - marks[2]) * 1e3
        events = self._observe(written, reports, (marks[3] - self._last_end) * 1e3, job_ms)
        marks.append(time.perf_counter())
        names = ("between", "plan", "build", "job", "observe")
        edges = [self._last_end, *marks]
        ms = {name: (edges[i + 1] - edges[i]) * 1e3 for i, name in enumerate(names)}
        self._last_end = marks[-1]
        self.last_epoch = epoch
        end_us = time.time_ns() // 1000
        misplaced = self.controller.misplaced
        self._on_epoch(EpochRecord(written, begin_us, end_us, reports, cells, ms, misplaced, tuple(events)))

    def _plan(self, epoch: int) -> WrittenPlan:
        written = self._written.get(epoch)
        if written is not None and written.plan.stop is None:
            with self._planning:
                if self._planned < epoch:
                    self.controller.adopt(written)
                self._planned = epoch
        else:
            with self._planning:
                written = self.controller.plan(epoch, self._checkpoint.generation)
                self._checkpoint.plans.append(written.to_json())
                self._planned = epoch
            self._written = {epoch: written}
        if written.plan.stop is not None:
            raise RelocationNeeded(written, self.controller.take_events())
        return written

    def _order(self, written: WrittenPlan) -> StepOrder:
        controller, plan = self.controller, written.plan
        return StepOrder(
            query=self._checkpoint.query,
            written=written,
            bins=controller.bins,
            operator=self._operator,
            output=self._output,
            state_dir=self._state_dir,
            first=self.last_epoch < 0,
            fresh=controller.fresh_workers(written),
            awaiting=tuple(np.flatnonzero(plan.routing != controller.location).tolist()),
            moving=tuple(controller.moving.tolist()),
        )

    def _job(self, frame: DataFrame, order: StepOrder) -> DataFrame:
        worker = worker_column(F.col("bin"), order.written.plan.routing)
        routed = frame.repartitionById(order.written.workers, worker)
        return routed.mapInArrow(partial(run_step, order), REPORT_SCHEMA)

    def _observe(self, written: WrittenPlan, reports: list[Report], epoch_ms: float, job_ms: float) -> list[Event]:
        observation = observation_of(written.epoch, reports, epoch_ms, job_ms)
        self._checkpoint.observed.append(observation.to_json())
        return self.controller.observe(observation)


def observation_of(epoch: int, reports: list[Report], epoch_ms: float, job_ms: float) -> Observation:
    """Merges the workers' reports of an epoch into what the controller needs to know."""

    def merged(name: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        pairs = [getattr(report, name) for report in reports]
        ids = np.concatenate([np.asarray(pair[0], np.int32) for pair in pairs]) if pairs else np.empty(0, np.int32)
        values = np.concatenate([np.asarray(pair[1], np.int64) for pair in pairs]) if pairs else np.empty(0, np.int64)
        return ids, values

    return Observation(
        epoch=epoch,
        pulled=tuple(bin_ for report in reports for bin_ in report.pulled),
        records=merged("rates"),
        queued=merged("queued"),
        sizes=merged("sizes"),
        epoch_ms=epoch_ms,
        job_ms=job_ms,
        pull_ms=max((report.ms.get("pull", 0.0) for report in reports), default=0.0),
    )
