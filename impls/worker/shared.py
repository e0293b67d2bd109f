"""Opening a worker's part of a store that all workers share."""

import numpy as np

from impls.errors import StateError
from impls.protocol.report import Report
from impls.protocol.shared import Shared, WorkerStore
from impls.store.meta import Meta, new_meta, read_meta, write_meta
from impls.store.state import BinState
from impls.worker.opened import Opened, check_owner
from impls.worker.query import Task

__all__ = ["open_shared"]


def open_shared(shared: Shared, task: Task, report: Report) -> Opened:
    """Opens a worker's state of the epoch before, or of this epoch if that is committed.

    Raises StateError when the store has neither, or is ahead of the epoch or of a later generation; nothing is
    touched then.
    """
    store = shared.open(task.spec.query, task.worker, report)
    meta = read_meta(store.begin())
    if meta is not None:
        check_owner(meta, task, f"{shared.address}, worker {task.worker},")
    if meta is None or meta.epoch < task.epoch - 1:
        meta = _begin_anew(shared, store, task, meta, report)
    return Opened(store, None, meta)


def _begin_anew(shared: Shared, store: WorkerStore, task: Task, found: Meta | None, report: Report) -> Meta:
    """Commits the state that the worker has before the first epoch, or before one that it comes back in."""
    order, spec, worker = task.order, task.spec, task.worker
    is_fresh = worker in order.fresh
    if not order.first and not is_fresh:
        what = "nothing of it" if found is None else f"only epoch {found.epoch}"
        raise StateError(
            f"Worker {worker} needs its state of epoch {task.epoch - 1}, but {shared.address} has "
            f"{what}: it has lost data, or is another server."
        )
    bins = [] if is_fresh else np.flatnonzero(order.written.plan.routing == worker).tolist()
    txn = shared.begin_anew(store, order.written, worker, bins)
    state = BinState(txn, spec.bins)
    for bin_ in bins:  # one in memory at a time
        spec.operator.create(bin_, spec.bins, state)
        shared.stage(txn)
    if not is_fresh:
        sizes = state.write_sizes()
        report.sizes = ([bin_ for bin_, _ in sizes], [size for _, size in sizes])
    meta = new_meta(spec.query, worker, task.epoch - 1, order.generation)
    write_meta(txn, meta)
    txn.commit()
    return meta
