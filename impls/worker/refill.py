"""Rebuilding a worker as it was behind its last commit, from snapshots and changelog."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import lmdb
import numpy as np

from impls.durability.files import Files
from impls.durability.frame import Frame, ends_epoch, frames_in
from impls.durability.restore import Restored, RestoreRequest, restore
from impls.durability.source import RestoreSource
from impls.errors import CorruptStateError, StateError
from impls.store.checked import put_of_epoch
from impls.store.tables import OUTBOX
from impls.worker.query import Task
from impls.worker.state import WorkerState, put_record, write_state

WHOLE_REPORT = OUTBOX + b"report"
"""Item with the report of the epoch that the worker has ended last."""


def has_worked(task: Task) -> bool:
    """Returns whether the changelog has commits of the worker in its epoch, also where it began with nothing."""
    return task.spec.files is not None and bool(_frames(task, task.spec.files, task.epoch))


def _frames(task: Task, files: Files, epoch: int) -> list[Frame]:
    """Returns the whole frames of the worker's segment of an epoch.

    One that is damaged counts as none where the epoch can be run again and writes it anew; else raises StateError.
    """
    try:
        return frames_in(files, task.worker, epoch)
    except CorruptStateError as error:
        if task.single:
            return []
        raise StateError(str(error)) from error


def _after(segment: Sequence[Frame]) -> WorkerState:
    """Returns a worker's state behind the last commit of a segment."""
    states = [WorkerState(**(frame.commit or {})["after"]) for frame in segment]
    reports = [state.report for state in states if state.report and state.epoch == states[-1].epoch]
    return replace(states[-1], report=reports[-1] if reports else "")


def refill(
    task: Task, source: RestoreSource, txn: lmdb.Transaction, states: dict[int, int], have: Mapping[int, int]
) -> tuple[Restored, int]:
    """Puts a worker as it was behind its last commit into an empty environment; returns also the last epoch it ended.

    Args:
        task: the worker's task in an epoch that it may have worked in already, and even ended.
        source: where bins are restored from.
        txn: gets bins, queues and what the commit has stored beside them.
        states: bin -> worker that held it when the epoch began.
        have: bin -> epoch whose end the transaction shows the bin at already.

    Raises StateError where the worker has ended the next epoch: then it is this attempt that is old.
    """
    # each file once: another attempt of a micro-batch may write one meanwhile
    before, now, behind = (_frames(task, source.files, task.epoch + step) for step in (-1, 0, 1))
    if behind and ends_epoch(behind[-1]):
        raise StateError(
            f"Worker {task.worker} has ended epoch {task.epoch + 1}, ahead of epoch {task.epoch}: this attempt is "
            "outdated."
        )
    segment = behind or now or before
    last = segment[-1] if segment else None
    states = states | {bin_: task.worker for frame in (*now, *behind) for bin_, _ in frame.pulls}
    queues = tuple(np.flatnonzero(task.order.written.plan.routing == task.worker).tolist())
    upto = task.epoch - 1 if last is None else max(task.epoch - 1, last.epoch)
    request = RestoreRequest(states, queues, task.worker, have, task.epoch, task.progress)
    restored = restore(source, txn, upto, request)
    if last is not None and last.commit is not None:
        after = _after(segment)
        write_state(txn, after.to_json(), after.report)
        put_record(txn, last.encode())
    reports = [frame.report for frame in now if frame.report]
    if reports:
        put_of_epoch(txn, WHOLE_REPORT, task.epoch, reports[-1])
    return restored, task.epoch if reports else task.epoch - 1
