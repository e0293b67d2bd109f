"""Rebuilding a worker of real-time mode: to its last turn, not to the end of an epoch, as its results were sent."""

from collections.abc import Mapping
from dataclasses import replace

import lmdb
import numpy as np

from impls.durability.restore import Restored, RestoreRequest, restore
from impls.durability.segments import frames_in, last_frame
from impls.store.checked import put_of_epoch
from impls.store.tables import OUTBOX
from impls.worker.query import Task
from impls.worker.turnstate import TurnState, put_frame, write_turn

__all__ = ["has_worked", "refill"]


def has_worked(task: Task) -> bool:
    """Returns whether the changelog has turns of the worker in its epoch, also where it began with nothing."""
    files = task.spec.files
    return task.spec.turns and files is not None and bool(frames_in(files, task.worker, task.epoch))


def refill(task: Task, txn: lmdb.Transaction, states: dict[int, int], have: Mapping[int, int]) -> tuple[Restored, int]:
    """Puts a worker as it was after its last turn into an empty environment; returns also the last epoch it ended.

    Args:
        task: the worker's task in an epoch that it may have worked in already, and even ended.
        txn: gets bins, queues and what the turn has committed beside them.
        states: bin -> worker that held it when the epoch began.
        have: bin -> epoch whose end the transaction shows the bin at already.
    """
    source, files = task.spec.source(), task.spec.files
    assert source is not None, "an environment is rebuilt from durable files alone"
    assert files is not None, "the same"
    last = last_frame(files, task.worker, task.epoch)
    now = frames_in(files, task.worker, task.epoch)
    later = [*now, *frames_in(files, task.worker, task.epoch + 1)]
    states = states | {bin_: task.worker for frame in later for bin_, _ in frame.pulls}
    queues = tuple(np.flatnonzero(task.order.written.plan.routing == task.worker).tolist())
    upto = task.epoch - 1 if last is None else max(task.epoch - 1, last.epoch)
    request = RestoreRequest(states, queues, task.worker, have, open_from=task.epoch)
    restored = restore(source, txn, upto, request)
    if last is not None and last.turn is not None:
        write_turn(txn, replace(TurnState(**last.turn["after"]), ended=""))
        put_frame(txn, last.encode())
    said = [(frame.turn or {}).get("after", {}).get("ended") for frame in now]
    ended = [report for report in said if report]
    if ended:
        put_of_epoch(txn, OUTBOX + b"report", task.epoch, ended[-1].encode())
    return restored, task.epoch if ended else task.epoch - 1
