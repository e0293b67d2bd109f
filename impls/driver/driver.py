"""One epoch after another: plan, one Spark job, observe. Called by Structured Streaming's foreachBatch."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.driver.checkpoint import Checkpoint
from impls.driver.journal import ADVICE
from impls.driver.keeper import Keeper
from impls.driver.orders import Orders
from impls.durability.files import Files
from impls.durability.schedule import REPLAY_EPOCHS
from impls.errors import StateError, UsageError
from impls.faults import fault
from impls.operators.base import Operator
from impls.protocol.commands import Command
from impls.protocol.controller import Controller
from impls.protocol.events import Event
from impls.protocol.eventtime import Partial
from impls.protocol.observation import Observation
from impls.protocol.plan import EpochPlan, Stop, WrittenPlan
from impls.protocol.report import Report
from impls.protocol.shared import Shared
from impls.spark.columns import worker_column, workers_column
from impls.spark.step import REPORT_SCHEMA, run_step
from impls.worker.cells import CELL
from impls.worker.order import StepOrder
from impls.worker.output import Output

__all__ = ["Driver", "EpochRecord", "QueryEnded", "StopNeeded"]


class QueryEnded(Exception):  # noqa: N818 - a signal to the supervisor, not a failure
    """The query was asked to end and stands between two epochs."""


class StopNeeded(Exception):  # noqa: N818
    """The plan asks for a stop before `epoch`: the query ends, that becomes durable, and it is started again.

    With `what` "application" the Spark session is to be stopped and started as well.
    """

    def __init__(self, epoch: int, what: Stop):
        super().__init__(f"stop before epoch {epoch}")
        self.epoch, self.what = epoch, what


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
        durable_bytes: size of changelog and snapshots after the epoch.
        events: migrations that began or ended with it.
        state_bytes: size of the state of all bins.
    """

    written: WrittenPlan
    begin_us: int
    end_us: int
    reports: list[Report]
    cells: dict[int, NDArray[np.void]]
    ms: dict[str, float]
    misplaced: int
    durable_bytes: int
    events: tuple[Event, ...] = ()
    state_bytes: int = 0


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
        files: Files | None,
        shared: Shared | None = None,
        replay_epochs: int = REPLAY_EPOCHS,
        on_epoch: Callable[[EpochRecord], None] | None = None,
    ):
        self.controller, self._checkpoint = controller, checkpoint
        self._on_epoch = on_epoch or (lambda _record: None)
        self._last_end = time.perf_counter()
        self.ending = False
        self.last_epoch = -1
        self._planned = self._held = -1  # the last epoch with a durable plan; the last one the controller holds
        self._planning = threading.Lock()
        self._routed: tuple[bytes, Column] | None = None
        self._replay()
        self._orders = Orders(
            checkpoint.query, controller.bins, operator, output, state_dir, files, checkpoint.generation,
            first_epoch=self.last_epoch + 1, shared=shared,
        )  # fmt: skip
        self._keeper: Keeper | None = None
        if files is not None:
            self._keeper = Keeper(
                files,
                checkpoint.query,
                controller.bins,
                epoch=self.last_epoch,
                generation=checkpoint.generation,
                replay_epochs=replay_epochs,
            )

    def _replay(self) -> None:
        checkpoint = self._checkpoint
        plans = [WrittenPlan.from_json(entry) for entry in checkpoint.read("plan")]
        observed = [Observation.from_json(entry) for entry in checkpoint.read("observed")]
        commands = [Command.from_json(entry) for entry in checkpoint.read("commands")]
        try:
            if checkpoint.base is not None:
                self.controller.restore(checkpoint.base.controller)
            self.controller.replay(plans, observed, commands)
        except (StateError, KeyError, ValueError) as error:
            raise UsageError(f"The journals in {checkpoint.own} do not fit together ({error}): {ADVICE}.") from error
        self._written = {plan.epoch: plan for plan in plans[-2:]}
        self.last_epoch = self._held = self.controller.observed
        self._planned = max([self.last_epoch, *(plan.epoch for plan in plans)])

    def command(self, kind: Literal["rescale", "rebalance"], goal: NDArray[np.int32], label: str) -> Command:
        """Makes a command durable, hands it to the controller and returns it; it holds from the next epoch planned."""
        with self._planning:
            command = Command.new(kind, goal, label, from_epoch=self._planned + 1)
            self._checkpoint.commands.append(command.to_json())
            self.controller.accept(command)
        return command

    def stopped(self, epoch: int) -> None:
        """Takes in, and makes durable, that the query has ended before an epoch as its plan asked for."""
        seen = Observation(epoch, stopped=True)
        with self._planning:
            self._checkpoint.observed.append(seen.to_json())
            self.controller.observe(seen)

    def run_epoch(self, frame: DataFrame, epoch: int) -> None:
        """Runs one epoch; raises QueryEnded or StopNeeded instead of beginning it."""
        if self.ending:
            raise QueryEnded
        marks = [time.perf_counter()]
        begin_us = time.time_ns() // 1000
        written = self._plan(epoch)
        order = self._orders.order(self.controller, written, self._keeper.due(epoch) if self._keeper else ())
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
        durable = self._keeper.kept_bytes if self._keeper else 0
        misplaced = self.controller.misplaced
        size = int(self.controller.size.sum())
        self._on_epoch(
            EpochRecord(written, begin_us, end_us, reports, cells, ms, misplaced, durable, tuple(events), size)
        )
        if self._checkpoint.due(epoch):
            self._rebase(written)
        fault("before-epoch-commit", epoch=epoch, migrating=written.migrating)

    def _plan(self, epoch: int) -> WrittenPlan:
        with self._planning:
            self._check_next(epoch)
            written = self._written.get(epoch)
            if written is None or written.plan.stop is not None:
                written = self._write_plan(epoch)
            elif epoch > self._held:
                self.controller.adopt(written)
            if written.plan.stop is not None:
                raise StopNeeded(epoch, written.plan.stop)
            self._held = epoch
        return written

    def _check_next(self, epoch: int) -> None:
        """Refuses an epoch that does not follow the journals, and to plan anew what was observed."""
        last, folder = self.last_epoch, self._checkpoint.folder
        if epoch not in {last, last + 1} or (epoch == last and epoch not in self._written):
            raise StateError(
                f"Spark begins epoch {epoch}, but the journals in {self._checkpoint.own} end with epoch {last}: "
                f"the parts of {folder} do not belong together; {ADVICE}."
            )

    def _write_plan(self, epoch: int) -> WrittenPlan:
        """Makes a plan and makes it durable."""
        written = self.controller.plan(epoch, self._checkpoint.generation)
        where = {"epoch": epoch, "migrating": written.migrating}
        fault("before-plan", **where)
        if written.drops:
            fault("between-pull-and-drop", **where)
        self._checkpoint.plans.append(written.to_json())
        fault("after-plan", **where)
        self._written, self._planned = {epoch: written}, epoch
        return written

    def _rebase(self, written: WrittenPlan) -> None:
        with self._planning:  # so that the controller knows every command in the journal
            self._checkpoint.rebase(written.epoch, self.controller.to_json(), written.to_json())

    def _job(self, frame: DataFrame, order: StepOrder) -> DataFrame:
        plan = order.written.plan
        worker = self._worker_column(plan)
        if plan.shadows:  # their records go to two workers
            both = frame.withColumn("worker", F.explode(workers_column("bin", plan.routing, plan.shadows)))
            routed = both.repartitionById(order.written.workers, F.col("worker")).drop("worker")
        else:
            routed = frame.repartitionById(order.written.workers, worker)
        return routed.mapInArrow(partial(run_step, order), REPORT_SCHEMA)

    def _worker_column(self, plan: EpochPlan) -> Column:
        """Returns the expression of a bin's worker, that of the last epoch where the routing is the same."""
        name = plan.routing.tobytes()
        if self._routed is None or self._routed[0] != name:
            self._routed = (name, worker_column("bin", plan.routing))
        return self._routed[1]

    def _observe(self, written: WrittenPlan, reports: list[Report], epoch_ms: float, job_ms: float) -> list[Event]:
        observation = observation_of(written.epoch, reports, epoch_ms, job_ms)
        self._checkpoint.observed.append(observation.to_json())
        events = self.controller.observe(observation)
        if self._keeper is not None:
            known = self.controller
            self._keeper.observe(written.epoch, reports, known.location, known.routing, known.size)
        return events


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
        entries=tuple(n for report in reports for n in report.pulled_entries),
        replicas=tuple((bin_, report.worker, at) for report in reports for bin_, at in report.replicas),
        records=merged("rates"),
        queued=merged("queued"),
        sizes=merged("sizes"),
        epoch_ms=round(epoch_ms, 3),
        job_ms=round(job_ms, 3),
        pull_ms=round(max((report.ms.get("pull", 0.0) for report in reports), default=0.0), 3),
        times=tuple((partition, time) for report in reports for partition, time in report.times),
        partials=tuple(Partial.from_json(partial) for report in reports for partial in report.partials),
        waits=tuple(sorted(bin_ for report in reports for bin_ in report.waits)),
    )
