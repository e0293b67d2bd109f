"""An epoch of one worker under an operator with event time: turns from queues and records, and their effects."""

from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa

from impls.protocol.report import EventTimes, Report
from impls.store.queue import queue_lengths, take_queues
from impls.store.records import Results
from impls.store.state import BinState
from impls.worker.query import Task
from impls.worker.turns import Turn, add_turns, highest_times, queued_turns, run_turns

__all__ = ["Applied", "apply_timed", "shadow_timed"]


@dataclass(frozen=True)
class Applied:
    """The state after the turns, results, the records that were applied, and the queue operations in order."""

    state: BinState
    results: Results
    records: pa.Table | None
    queue: list[tuple[int, bytes | None]]


def apply_timed(
    task: Task,
    txn: lmdb.Transaction,
    records: pa.Table | None,
    blocked: set[int],
    *,
    report: Report,
) -> Applied:
    """Runs an epoch on the bins that are here, queues the turns of the others, and fills in the report.

    Args:
        task: the worker's task.
        txn: its transaction.
        records: the epoch's records of its bins.
        blocked: bins, of this worker or not, that run nothing in this epoch.
        report: takes the part `event_time`.
    """
    written, bins, operator = task.order.written, task.spec.bins, task.spec.operator
    times: list[list[int]] = []
    if records is not None and len(records):
        times = highest_times(records, operator)
    mine = written.plan.routing == task.worker
    waits = np.zeros(bins, bool)
    waits[list(blocked)] = True
    merged = [partial for partial in written.merged if mine[partial.bin]]
    ready = [bin_ for bin_ in queue_lengths(txn) if bin_ not in blocked]
    turns = queued_turns(take_queues(txn, ready), bins)
    later, now = (
        Turn(
            mine & chosen,
            written.watermark,
            None if records is None else records.filter(pa.array(chosen[records.column("bin").to_numpy()])),
            [partial for partial in merged if chosen[partial.bin]],
        )
        for chosen in (waits, ~waits)
    )
    queue = [(bin_, None) for bin_ in ready] + add_turns(txn, written.epoch, later)
    turns.append(now)
    state = BinState(txn, bins)
    done = run_turns(operator, state, turns)
    partials = [partial.to_json() for partial in done.partials]
    report.event_time = EventTimes(times, partials, np.flatnonzero(later.bins).tolist(), done.late, done.fired)
    applied = [turn.records for turn in turns if turn.records is not None and len(turn.records)]
    timed = pa.concat_tables([table.select(["bin", "time"]) for table in applied]) if applied else None
    return Applied(state, done.results, timed, queue)


def shadow_timed(task: Task, state: BinState, bins: list[int], records: pa.Table | None) -> None:
    """Runs the epoch on shadows of bins, as their owners do, and discards the results."""
    mask = np.zeros(task.spec.bins, bool)
    mask[bins] = True
    merged = [partial for partial in task.order.written.merged if mask[partial.bin]]
    run_turns(task.spec.operator, state, [Turn(mask, task.order.written.watermark, records, merged)])
