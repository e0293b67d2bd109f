"""The end of a worker's tick: a turn of its own says so, then come the snapshots and replicas that the order asks."""

import os
from collections.abc import Collection
from dataclasses import replace

from impls.faults import fault
from impls.protocol.realtime import Ended
from impls.protocol.report import Report
from impls.realtime.environment import TurnEnvironment
from impls.realtime.latencies import Latencies
from impls.realtime.merging import merge_told
from impls.realtime.times import counted, ended
from impls.store.records import Results
from impls.worker.applying import Applying
from impls.worker.parts import write_snapshot
from impls.worker.query import Task
from impls.worker.replicas import keep_replicas

__all__ = ["end_tick"]


def end_tick(env: TurnEnvironment, task: Task, report: Report, blocked: Collection[int]) -> Ended:
    """Commits that the worker has ended its tick, and returns what to answer; a task that comes later repeats it.

    Args:
        env: the worker's environment.
        task: its task.
        report: of the tick.
        blocked: bins of the worker that run nothing at the tick's end: those that it has not pulled, or holds.
    """
    report.pid, report.lmdb_bytes = os.getpid(), env.used_bytes
    if task.spec.operator.event_time is not None:
        merge_told(report, task.spec.operator)
        report.event_time = replace(report.event_time, waits=sorted(blocked))
    _commit(env, task, report)
    if task.spec.files is not None and task.order.snapshot:
        with env.reading(buffers=False) as view:
            write_snapshot(task, view, report)
    keep_replicas(task, [], report)
    fault("before-report", worker=task.worker, epoch=task.epoch, migrating=task.order.written.migrating)
    answer = Ended(task.epoch, task.worker, counted(report, env.state.said).to_json(), env.latencies.to_bytes())
    env.latencies = Latencies.none()
    return answer


def _commit(env: TurnEnvironment, task: Task, report: Report) -> None:
    after = replace(ended(env.state), tick=task.epoch + 1, turn=0, begun=task.epoch, report="", records=0, results=0)
    txn, frame = env.begin(), env.frame()
    try:
        Applying(task, txn, report).report_queues()
        raw = env.commit(txn, frame, Results.none(), replace(after, ended=report.to_json().decode()))
    except BaseException:
        txn.abort()
        raise
    env.log(task.epoch, raw)
