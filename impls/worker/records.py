"""The records of a worker's step, and whether the queues it finds are whole."""

from collections.abc import Sequence

import pyarrow as pa

from impls.errors import CorruptStateError
from impls.store.queue import Lengths
from impls.store.records import concat
from impls.worker.query import Task

__all__ = ["check_queues", "own_records"]


def own_records(task: Task, received: Sequence[pa.Table]) -> pa.Table | None:
    """Returns the epoch's records without those that only a replica here processes, None when there are none."""
    plan, tables = task.order.written.plan, received
    if any(worker == task.worker for _, worker in plan.shadows):
        tables = [t.filter(pa.array(plan.routing[t.column("bin").to_numpy()] == task.worker)) for t in tables]
    return concat(list(tables)) if tables else None


def check_queues(task: Task, lengths: Lengths) -> None:
    """Raises CorruptStateError when queues are not as long as they were.

    A damaged key may hide a part of a queue, or may have kept a part of an earlier one from being deleted.
    """
    routing = task.order.written.plan.routing
    expected = {bin_: n for bin_, n in task.order.queued if routing[bin_] == task.worker}
    found = {bin_: n for bin_, (n, _) in lengths.items()}
    if found != expected:
        bin_ = min(bin_ for bin_, _ in expected.items() ^ found.items())
        number = expected.get(bin_, 0)
        raise CorruptStateError(f"The queue of bin {bin_} holds {found.get(bin_, 0)} records, not {number}.")
