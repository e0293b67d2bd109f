"""One turn of a worker: drops, pulls and records in one commit, then its frame and results; and its part of a tick."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import lmdb

from impls.durability.frame import Frame
from impls.faults import fault
from impls.operators.timed import TimedOperator
from impls.protocol.order import EpochOrder
from impls.protocol.plan import Pull
from impls.protocol.report import Report, Written
from impls.protocol.session import Ended, Final, Marks
from impls.realtime.blobs import Blob, table_of
from impls.realtime.environment import TurnEnvironment
from impls.realtime.merging import Latencies, counted, ended, lasting, merge_told, merged_report, seen
from impls.store.bins import begin_drop, drop_piece
from impls.store.records import Results, counts
from impls.store.state import BinState
from impls.worker.applying import Applying
from impls.worker.parts import Cause, Phase, write_snapshot
from impls.worker.pull import on_demand, pull_bins, within_budget
from impls.worker.query import Task
from impls.worker.refused import Again
from impls.worker.replicas import keep_replicas
from impls.worker.versions import without

_DROP_ITEMS = 1024  # a turn's piece of old copies: 2 to 3 ms, of a bin of 39,000 entries 60 to 90 in one piece


@dataclass(frozen=True)
class TurnInput:
    """What a turn is given.

    Attributes:
        blobs: records.
        pulls: bins to pull, whose old owners are final.
        blocked: bins that run nothing in it.
        in_tick: a tick is under way, and not only its records come.
    """

    blobs: Sequence[Blob]
    pulls: Sequence[Pull] = ()
    blocked: Collection[int] = ()
    in_tick: bool = True


@dataclass(frozen=True)
class Turned:
    """What a turn leaves: the report of the tick so far, and milliseconds of the turn's phases."""

    report: Report
    ms: Mapping[str, float]


def run_turn(env: TurnEnvironment, task: Task, turn_input: TurnInput, so_far: Report) -> tuple[Task, Turned]:
    """Commits a turn, logs its frame, sends its results and counts latencies; `so_far` is the tick's report before.

    What an operator fails on is left out, or a version of the pipeline, as the task that is returned says: the turn is
    done again with the same records, as no other turn can tell whether the version or they are to blame.

    Raises lmdb.Error or CorruptStateError, and has changed nothing then, before the commit; StateError behind it, or
    for what cannot be left out.
    """
    while True:
        env.task = task
        try:
            return task, _run(env, task, turn_input, so_far)
        except Again as error:
            task = without(task, error)


def _run(env: TurnEnvironment, task: Task, turn_input: TurnInput, so_far: Report) -> Turned:
    report = Report(task.worker, turns=1)
    txn = env.begin()
    try:
        work = _work(env, task, txn, turn_input, report, so_far)
        with Phase(report.ms, "commit"):
            frame = env.frame(pulls=[(pull.bin, pull.source) for pull in turn_input.pulls], **work.logged())
            state = seen(env.state, turn_input.blobs, task.spec.operator)
            begun = task.epoch if turn_input.in_tick else state.begun
            after = lasting(replace(state, turn=state.turn + 1, begun=begun), so_far, report)
            env.latencies.turn(work.records, task.order.moving)
            raw = env.commit(txn, frame, work.results, after)
    except BaseException:
        txn.abort()
        raise
    env.queues = work.queues()
    if work.advance is not None:
        work.advance.hold()
    _publish(env, frame, work.results, raw, report)
    if task.spec.files is not None:
        report.changelog = Written(_changed(task, frame, report), len(raw))
    return Turned(merged_report(so_far, report), report.ms)


def _work(  # noqa: PLR0917 - the worker, its transaction, what comes in and what is told
    env: TurnEnvironment, task: Task, txn: lmdb.Transaction, turn_input: TurnInput, report: Report, so_far: Report
) -> Applying:
    """Does a turn's drops, pulls and records in its transaction."""
    written = task.order.written
    first = turn_input.in_tick and env.state.begun != task.epoch
    with Phase(report.ms, "drop"):
        if first:
            _begin_drops(env, txn, [bin_ for bin_, worker in written.drops if worker == task.worker])
        drop_piece(txn, _DROP_ITEMS)
    if turn_input.pulls:
        with Phase(report.ms, "pull"):
            # damage may have come with a pulled bin: then the source is not read again in this tick
            doubt = Cause.DAMAGED.value in so_far.recovered
            done = pull_bins(task, turn_input.pulls, txn, from_checkpoint=doubt or written.plan.from_checkpoint)
            report.moves, report.sizes = done.moves(), (list(done.sizes), list(done.sizes.values()))
            env.offsets.load(txn, done.sizes)
    with Phase(report.ms, "apply"):
        env.queues.check(txn)
        work = Applying(
            task, txn, report, number=env.state.number, offsets=env.offsets, begin=lambda: env.begin_inner(txn),
            queues=env.queues,
        )  # fmt: skip
        table = table_of(turn_input.blobs)
        if table is not None:
            report.rates = counts(table.column("bin").to_numpy())
        work.run(table, turn_input.blocked, written.merged if first else ())
        work.report_queues()
    return work


def _begin_drops(env: TurnEnvironment, txn: lmdb.Transaction, bins: Sequence[int]) -> None:
    """Begins a tick's drops, behind what is left of those before: never is more left than one tick drops."""
    if bins:
        drop_piece(txn)
    for bin_ in bins:
        begin_drop(txn, bin_)
    env.offsets.forget(bins)


def _publish(env: TurnEnvironment, frame: Frame, results: Results, raw: bytes, report: Report) -> None:
    """Logs the frame, then sends the results: whoever finds the frame lost has sent nothing of its turn."""
    _fault(env.task, "after-commit")
    with Phase(report.ms, "log"):
        env.log(frame.epoch, raw)
    _fault(env.task, "before-results")
    with Phase(report.ms, "send"):
        env.send(frame, results)
    report.done_us = time.time_ns() // 1000
    env.latencies.arrived()


def _changed(task: Task, frame: Frame, report: Report) -> list[int]:
    """Returns the bins that a turn has changed, with timers as its frame has them, else from what it was given."""
    if task.spec.operator.event_time is not None:
        return frame.bins()
    return sorted(
        {*report.rates[0], *(bin_ for bin_, _ in frame.pulls), *(bin_ for bin_, _ in frame.queue), *_turned(report)}
    )


def _turned(report: Report) -> list[int]:
    return [bin_ for bin_, _ in report.pipelines.turned]


def _fault(task: Task, point: str) -> None:
    fault(point, worker=task.worker, epoch=task.epoch, attempt=0, migrating=task.order.written.migrating)


def end_tick(env: TurnEnvironment, task: Task, report: Report, blocked: Collection[int]) -> Ended:
    """Commits that the worker has ended its tick, and returns what to answer; a task that comes later repeats it.

    Args:
        env: the worker's environment.
        task: its task.
        report: of the tick.
        blocked: bins of the worker that run nothing at the tick's end: those that it has not pulled, or holds.
    """
    report.pid, report.lmdb_bytes = os.getpid(), env.used_bytes
    cells, report.negative = env.latencies.cells()
    if task.spec.operator.event_time is not None:
        merge_told(report, task.spec.operator)
        report.event_time = replace(report.event_time, waits=sorted(blocked))
    _commit(env, task, report, cells)
    if task.spec.files is not None and task.order.snapshot:
        with env.reading(buffers=False) as view:
            write_snapshot(task, view, report)
    keep_replicas(task, [], report)
    fault("before-report", worker=task.worker, epoch=task.epoch, migrating=task.order.written.migrating)
    raw = counted(report, env.state.said).to_json()
    env.latencies = Latencies.none()
    return Ended(task.epoch, task.worker, raw, cells, _due(env, task, blocked))


def _due(env: TurnEnvironment, task: Task, blocked: Collection[int]) -> int | None:
    """Returns the time of the earliest timer of the worker's bins."""
    operator = task.spec.operator
    if not isinstance(operator, TimedOperator) or operator.processing:
        return None
    bins = task.order.written.plan.routing == task.worker
    bins[list(blocked)] = False
    with env.reading(buffers=False) as view:
        return BinState(view, task.spec.bins).earliest_timer(bins)


def _commit(env: TurnEnvironment, task: Task, report: Report, cells: bytes) -> None:
    after = ended(env.state).next_tick(task.epoch)
    txn, frame = env.begin(), env.frame()
    try:
        env.queues.check(txn)
        Applying(task, txn, report, queues=env.queues).report_queues()
        after = replace(after, ended=report.to_json().decode())  # report_queues() has completed it
        raw = env.commit(txn, frame, Results.none(), after, cells=cells)
    except BaseException:
        txn.abort()
        raise
    env.log(task.epoch, raw)


class WorkerTick:
    """hear() what the driver says; due() and pulled() in turn; ready() says that the worker may end the tick.

    Attributes:
        missing: bins routed here whose state has not come.

    Args:
        order: the tick's.
        worker: the worker.
        done: bins that it has pulled in this tick before its task was started again.
    """

    def __init__(self, order: EpochOrder, worker: int, done: Collection[int] = ()):
        self._plan, self._tick = order.written.plan, order.written.epoch
        self._sizes = dict(order.sizes)
        routing = self._plan.routing
        mine = [p for p in self._plan.pulls if p.target == worker and p.bin not in done]
        self.missing = {bin_ for bin_, _ in order.elsewhere if routing[bin_] == worker} - set(done)
        if not self._plan.on_demand:
            mine = within_budget(mine, self._sizes, self._plan.budget_bytes)
        self._left = mine
        self._spent, self._swept = 0, False
        self._marks: dict[int, int] | None = None
        self._finals: set[int] = set()
        self._all_final = False

    def hear(self, message: Marks | Final) -> None:
        """Takes in marks, or that a worker is final; those of another tick are passed over."""
        if message.tick != self._tick:
            return
        if isinstance(message, Final):
            self._finals.add(message.worker)
        else:
            self._marks, self._all_final = dict(message.counts), message.settled

    def reached(self, applied: Mapping[int, int]) -> bool:
        """Returns whether nothing more comes by the routing before, when the first blobs `applied` are committed."""
        return self._marks is not None and all(applied.get(f, 0) >= n for f, n in self._marks.items())

    def closing(self, applied: Mapping[int, int]) -> bool:
        """Returns whether all that is left to be pulled can be, and nothing more comes by the routing before."""
        final = self._all_final or {pull.source for pull in self._left} <= self._finals
        return final and self.reached(applied)

    def due(self, need: Mapping[int, int], *, closing: bool) -> list[Pull]:
        """Returns the pulls to do now, in order.

        Args:
            need: records that wait for bins, queued or just come.
            closing: what nothing needs may come too, once in a tick.
        """
        open_ = [pull for pull in self._left if self._all_final or pull.source in self._finals]
        if not self._plan.on_demand:
            return open_
        budget = None if self._plan.budget_bytes is None else self._plan.budget_bytes - self._spent
        if budget is not None and budget <= 0 and self._spent:
            return []
        if closing and not self._swept:
            return on_demand(open_, need, self._sizes, replace(self._plan, budget_bytes=budget))
        wanted = sorted((pull for pull in open_ if need.get(pull.bin)), key=lambda pull: -need[pull.bin])
        return within_budget(wanted, self._sizes, budget)

    def pulled(self, pulls: Collection[Pull], *, closing: bool) -> None:
        """Takes in that what due() returned is committed."""
        bins = {pull.bin for pull in pulls}
        self._left = [pull for pull in self._left if pull.bin not in bins]
        self.missing -= bins
        self._spent += sum(self._sizes.get(bin_, 0) for bin_ in bins)
        self._swept = self._swept or closing

    def ready(self, applied: Mapping[int, int]) -> bool:
        """Returns whether the worker may end the tick: its marks are reached, and nothing is left that it must pull."""
        if self._plan.on_demand:
            return self._swept and self.reached(applied)
        return self.reached(applied) and not self._left
