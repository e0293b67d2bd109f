"""One commit of a worker, with its frame and results: drops, pulls and records in a transaction; an epoch's end."""

import os
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import lmdb
import pyarrow as pa

from impls.durability.frame import Frame
from impls.faults import fault
from impls.protocol.eventtime import EpochClock
from impls.protocol.plan import Pull
from impls.protocol.report import PARTS, Report, Written
from impls.store.bins import begin_drop, drop_bin, drop_piece
from impls.store.records import Results, counts
from impls.store.state import BinState
from impls.worker.applying import Applying, reported
from impls.worker.changelog import sizes_of
from impls.worker.environment import Environment
from impls.worker.parts import Phase, write_snapshot
from impls.worker.pull import pull_bins
from impls.worker.query import Task
from impls.worker.replicas import keep_replicas
from impls.worker.reports import Times, add_times, count_times, keep_report, merged_report

_DROP_ITEMS = 1024  # a commit's piece of old copies: 2 to 3 ms, of a bin of 39,000 entries 60 to 90 in one piece


@dataclass(frozen=True)
class CommitInput:
    """The input of one commit.

    Attributes:
        records: of the worker's bins, in (partition, offset) order; None for none.
        pulls: bins to pull, which their old owners change no more.
        blocked: bins that run nothing in it.
        times, ahead: [partition, highest event time] of records, see `impls.worker.reports`.
        in_epoch: an epoch is under way; without, records alone come, between two epochs.
        ends: the commit ends the epoch.
        rises: it is the first one behind a rise of the watermark within the epoch.
    """

    records: pa.Table | None
    pulls: Sequence[Pull] = ()
    blocked: Collection[int] = ()
    times: Times = field(default_factory=list)
    ahead: Times = field(default_factory=list)
    in_epoch: bool = True
    ends: bool = False
    rises: bool = False


def run_commit(env: Environment, task: Task, given: CommitInput, so_far: Report, *, doubtful: bool = False) -> Report:
    """Commits, logs the frame, sends the results and counts latencies; returns the report.

    That is the commit's, or the whole report of the epoch where the commit ends it.

    Args:
        env: the worker's environment.
        task: its task.
        given: what there is to do.
        so_far: the report of the epoch, as far as earlier commits have come.
        doubtful: bins are pulled from the checkpoint, as damage may have come with them.

    Raises lmdb.Error or CorruptStateError, and has changed nothing then, before the commit; StateError behind it; and
    `impls.worker.refused.Again` for a record or a version that is to be left out.
    """
    report = Report(task.worker, commits=0 if given.ends else 1)
    txn = env.begin()
    try:
        work = _work(env, task, txn, given, report, doubtful=doubtful)
        with Phase(report.ms, "commit"):
            changes = {} if task.spec.files is None else work.logged()
            frame = env.frame(pulls=[(pull.bin, pull.source) for pull in given.pulls], **changes)
            if task.spec.files is not None:
                report.changelog = Written(_changed(task, frame, report))
            stored = env.latencies.add(work.records, task.order.moving)
            state = add_times(env.state, given.times, given.ahead)
            if given.ends:
                whole = _whole_report(env, task, merged_report(so_far, report), given.blocked)
                after = count_times(state).next_epoch(task.epoch)
                record = env.commit(txn, frame, work.results, after, report=whole.to_json())
            else:
                if given.in_epoch:
                    state = replace(state, begun=task.epoch, risen=task.risen)
                after = keep_report(replace(state, commits=state.commits + 1), so_far, report)
                record = env.commit(txn, frame, work.results, after)
    except BaseException:
        txn.abort()
        raise
    if given.ends:
        whole.ms |= report.ms | _inside(env)  # no other commit of the epoch has had these phases
        report = whole
    report.outbox_bytes = len(frame.results) + stored
    env.queues = work.queues
    for advance in work.advance:
        advance.hold()
    _publish(env, frame, work.results, record, report)
    if task.spec.files is not None:
        size, besides = sizes_of(frame, record)
        report.changelog = replace(report.changelog, bytes=size, besides=besides)
    return report


def _work(
    env: Environment, task: Task, txn: lmdb.Transaction, given: CommitInput, report: Report, *, doubtful: bool
) -> Applying:
    """Does a commit's drops, pulls and records in its transaction."""
    written, whole = task.order.written, task.spec.shared is None
    first = given.in_epoch and env.state.begun != task.epoch
    with Phase(report.ms, "drop"):
        if first:
            _begin_drops(env, txn, [bin_ for bin_, worker in written.drops if worker == task.worker], whole=whole)
        drop_piece(txn, sys.maxsize if given.ends else _DROP_ITEMS)  # a later commit goes on, where there is one
    if given.pulls:
        with Phase(report.ms, "pull"):
            done = pull_bins(task, given.pulls, txn, from_checkpoint=doubtful or written.plan.from_checkpoint)
            report.moves, report.sizes = done.moves(), (list(done.sizes), list(done.sizes.values()))
            for known in env.applied:
                known.load(txn, done.sizes)
    with Phase(report.ms, "apply"):
        if whole:
            env.queues.check(txn)
        work = Applying(
            task, txn, report, number=env.state.number, applied=env.applied, begin=lambda: env.begin_inner(txn),
            queues=env.queues, clock=_clock(task, given, first=first),
        )  # fmt: skip
        if given.records is not None:
            report.rates = counts(given.records.column("bin").to_numpy())
        work.run(given.records, given.blocked)
        report.queues = reported(work.queues)
    return work


def _clock(task: Task, given: CommitInput, *, first: bool) -> EpochClock | None:
    """Returns the times of a commit, None where the event time of the operator has no clock.

    Between two epochs a bin that waited in the one before has timers up to its watermark still to run.
    """
    written = task.order.written
    if written.clock is None or first:
        return written.clock
    run = written.watermark if given.rises else task.watermark  # up to where timers have run
    if given.in_epoch or given.blocked or written.plan.held_by(task.worker):
        return written.clock.behind_first(run)
    return written.clock.behind_epoch(run)


def _begin_drops(env: Environment, txn: lmdb.Transaction, bins: Sequence[int], *, whole: bool) -> None:
    """Begins an epoch's drops, behind what is left of those before: never is more left than one epoch drops."""
    if bins and whole:
        drop_piece(txn)
    for bin_ in bins:
        if whole:
            begin_drop(txn, bin_)
        else:
            drop_bin(txn, bin_)
    for known in env.applied:
        known.forget(bins)


def _publish(env: Environment, frame: Frame, results: Results, record: bytes, report: Report) -> None:
    """Logs the frame, then sends the results: whoever finds the frame lost has sent nothing of its commit."""
    _fault(env.task, "after-commit")
    with Phase(report.ms, "log"):
        env.log(frame.epoch, record)
    _fault(env.task, "before-results")
    with Phase(report.ms, "send"):
        env.send(frame, results)
    report.done_us = time.time_ns() // 1000
    env.latencies.arrived(report.done_us)


def _changed(task: Task, frame: Frame, report: Report) -> list[int]:
    """Returns the bins that a commit has changed, with timers as its frame has them, else from its input."""
    if task.spec.operator.event_time is not None:
        return frame.bins()
    shapes = (bin_ for bin_, _ in report.pipelines.turned)
    bins = {*report.rates[0], *shapes, *(bin_ for bin_, _ in frame.pulls), *(bin_ for bin_, _ in frame.queue)}
    return sorted(bins)


def _fault(task: Task, point: str) -> None:
    fault(point, **task.where)


def _whole_report(env: Environment, task: Task, report: Report, blocked: Collection[int]) -> Report:
    """Completes the report of an epoch that ends, with what the worker is, has and leaves waiting, and returns it.

    Args:
        env: the worker's environment.
        task: its task.
        report: of all of its commits.
        blocked: bins of the worker that run nothing at the epoch's end: those that it has not pulled, or holds.
    """
    report.pid, report.attempt, report.host, report.lmdb_bytes = os.getpid(), task.attempt, task.host, env.used_bytes
    if task.spec.operator.event_time is not None:
        report.event_time = replace(report.event_time, waits=sorted(blocked), until=task.risen)
    if task.spec.shared is not None:  # it counts from its opening on
        report.cache = env.report.cache
        report.ms |= _inside(env)
    return report


def _inside(env: Environment) -> dict[str, float]:
    """Returns the times inside other phases, which a shared store counts."""
    return {name: env.report.ms[name] for name in PARTS if name in env.report.ms}


def commit_end(env: Environment, task: Task, report: Report, blocked: Collection[int]) -> Report:
    """Commits that the worker has ended its epoch, where no commit has; a task that comes later repeats the answer.

    Returns the whole report.
    """
    txn, frame = env.begin(), env.frame()
    try:
        env.queues.check(txn)
        report.queues = reported(env.queues)
        whole = _whole_report(env, task, report, blocked)
        env.latencies.add(None, ())
        after = count_times(env.state).next_epoch(task.epoch)
        record = env.commit(txn, frame, Results.none(), after, report=whole.to_json())
    except BaseException:
        txn.abort()
        raise
    env.log(task.epoch, record)
    return whole


def follow_end(env: Environment, task: Task, report: Report, received: Sequence[pa.Table] | None) -> None:
    """Does what follows an epoch's last commit, and its repetition: snapshots and replicas; the report takes them.

    Args:
        env: the worker's environment.
        task: its task.
        report: takes what was done.
        received: the epoch's records, standbys' included; None where workers commit in no common order.
    """
    if task.spec.files is not None and task.order.snapshot and not env.state.commits:
        with Phase(report.ms, "snapshot"), env.reading(buffers=False) as view:
            write_snapshot(task, view, report)
    with Phase(report.ms, "replicate"):
        keep_replicas(task, None if received is None else list(received), report)
    report.lmdb_bytes = env.used_bytes
    _fault(task, "before-report")


def earliest_timer(env: Environment, task: Task, blocked: Collection[int]) -> int | None:
    """Returns the event time of the earliest timer of the worker's bins, None without timers of event time."""
    operator = task.spec.operator
    if operator.event_time is None or operator.processing or not operator.timer_unit:
        return None
    bins = task.order.written.plan.routing == task.worker
    bins[list(blocked)] = False
    with env.reading(buffers=False) as view:
        due = BinState(view, task.spec.bins).earliest_timer(bins)
    return None if due is None else due * operator.timer_unit
