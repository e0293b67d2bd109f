"""Opening a worker's environment, or its part of a shared store: checked, created, or rebuilt from the checkpoint."""

import shutil
import time
from pathlib import Path

import lmdb
import numpy as np

from impls.durability.frame import fence
from impls.durability.snapshot import map_of
from impls.errors import StateError
from impls.protocol.mechanism import Shared, WorkerStore
from impls.protocol.report import Report
from impls.store.environment import DAMAGE, Meta, Store, delete_aside, read_meta, set_aside, store_path, write_meta
from impls.store.lock import WriterLock, holds, take_lock
from impls.store.state import BinState
from impls.worker.parts import Cause, Opened, Untrusted
from impls.worker.query import Task
from impls.worker.refill import has_worked, refill
from impls.worker.replicas import copy_replicas
from impls.worker.state import forget_state

_ROUNDS = 10  # environments of other attempts that may take this one's place before it gives up


def open_worker(task: Task, *, map_bytes: int, untrusted: Untrusted | None, report: Report) -> Opened:
    """Opens the environment of a worker with its state of the epoch before, or of this epoch if that is committed.

    An environment that is missing, stale or damaged, or whose writer does not end, is rebuilt from the checkpoint. Of a
    store that all workers share it opens the worker's part.

    Args:
        task: the worker's task.
        map_bytes: least size of the map.
        untrusted: why the environment has to be rebuilt even if it looks sound; None to trust it.
        report: takes the sizes of created bins and why the environment was rebuilt.

    Raises:
        StateError: it is ahead of the epoch, of a newer generation or of another query, and is left as it is; or it
            must be rebuilt and durability is "none"; or other attempts put theirs in its place again and again.
    """
    if task.spec.shared is not None:
        return _open_shared(task.spec.shared, task, report)
    path = store_path(task.state_dir, task.worker)
    for _ in range(_ROUNDS):
        found = _open_or_set_aside(task, path, map_bytes, untrusted)
        if isinstance(found, Opened):
            return found
        why, aside = found
        opened = _rebuilt(task, path, aside, map_bytes=map_bytes, why=why, report=report)
        if opened is not None:
            return opened
        untrusted = None  # another attempt was quicker: its environment is judged anew
    raise StateError(f"Other attempts have replaced the state in {path} {_ROUNDS} times: this attempt gives up.")


def _open_or_set_aside(
    task: Task, path: Path, map_bytes: int, untrusted: Untrusted | None
) -> Opened | tuple[Untrusted, Path | None]:
    """Opens the environment that is there, or sets it aside; returns why and its new name then."""
    lock = take_lock(path)
    if lock is None:
        untrusted = Untrusted(Cause.HELD)
    try:
        try:
            if lock is not None and untrusted is None:
                return _trusted(task, path, lock, map_bytes)
            _refuse_ahead(task, path)
        except _UnusableError as error:
            untrusted = error.untrusted
        except DAMAGE as error:
            untrusted = untrusted or Untrusted(Cause.DAMAGED, str(error))
        assert untrusted is not None, "a trusted environment was returned, or something was wrong with it"
        aside = _set_aside(task, path, untrusted)  # while the lock keeps others out
    except BaseException:
        _release(lock)
        raise
    _release(lock)
    return untrusted, aside


def _release(lock: WriterLock | None) -> None:
    if lock is not None:
        lock.close()


class _UnusableError(Exception):
    """The environment is not of the epoch before nor of this one."""

    def __init__(self, untrusted: Untrusted):
        super().__init__(str(untrusted))
        self.untrusted = untrusted


def _trusted(task: Task, path: Path, lock: WriterLock, map_bytes: int) -> Opened:
    spec = task.spec
    store = Store.open(path, map_bytes=map_bytes, sync=spec.fsync, extended=spec.files is not None)
    try:
        with store.reading() as txn:
            meta = _checked(read_meta(txn), task, path)
        if task.order.check_frame:
            delete_aside(path)  # nobody rebuilds the worker now, who would put it back: the lock is here
    except BaseException:
        store.close()
        raise
    return Opened(store, lock, meta)


def _refuse_ahead(task: Task, path: Path) -> None:
    """Raises StateError when an environment that is to be given up is ahead: then it is this attempt that is old."""
    with Store.open(path, create=False) as store, store.reading() as txn:
        meta = read_meta(txn)
        if meta is not None:
            _check_owner(meta, task, path)


def _checked(meta: Meta | None, task: Task, path: Path) -> Meta:
    if meta is None:
        raise _UnusableError(Untrusted(Cause.MISSING))
    _check_owner(meta, task, path)
    if meta.epoch < task.epoch - 1:
        raise _UnusableError(Untrusted(Cause.STALE, f"epoch {meta.epoch}"))
    return meta


def _check_owner(meta: Meta, task: Task, path: Path | str) -> None:
    """Refuses state that a newer epoch or driver has written, or that belongs to another query."""
    if meta.query != task.spec.query:
        raise StateError(f"The state in {path} belongs to another query: give this one its own state folder.")
    if meta.epoch > task.epoch or meta.generation > task.order.generation:
        raise StateError(
            f"The state in {path} is at epoch {meta.epoch} of generation {meta.generation}, ahead of epoch "
            f"{task.epoch} of generation {task.order.generation}: this attempt is outdated."
        )


def _set_aside(task: Task, path: Path, why: Untrusted) -> Path | None:
    if task.spec.files is None and not task.order.first and task.worker not in task.order.fresh:
        raise StateError(
            f"Worker {task.worker} needs its state of epoch {task.epoch - 1} in {path}, but it is {why}; with "
            'durability "none" there is no copy of it.'
        )
    return set_aside(path)


def _rebuilt(
    task: Task, path: Path, aside: Path | None, *, map_bytes: int, why: Untrusted, report: Report
) -> Opened | None:
    """Makes an environment in place of the one set aside, which is deleted only when that has succeeded.

    Returns None when another attempt has made one there meanwhile.
    """
    lock = take_lock(path)
    if lock is None or (path / "data.mdb").exists():
        _release(lock)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        return None
    try:
        opened = _new(task, path, lock, map_bytes=max(map_bytes, _durable_map(task)), why=why, report=report)
    except BaseException:
        if aside is not None and holds(lock, path):  # else another attempt has its own environment there
            doomed = set_aside(path)
            aside.rename(path)
            shutil.rmtree(doomed or aside, ignore_errors=True)
        lock.close()
        raise
    delete_aside(path)
    return opened


def _durable_map(task: Task) -> int:
    """Returns the size of a map for a rebuild, which begins anew with each larger one; 0 where there is nothing."""
    files = task.spec.files
    return 0 if files is None or task.order.first else map_of(files)


def _new(task: Task, path: Path, lock: WriterLock, *, map_bytes: int, why: Untrusted, report: Report) -> Opened:
    """Makes a new environment: empty, created or rebuilt, committed as of the epoch before."""
    store = Store.open(path, map_bytes=map_bytes, sync=task.spec.fsync)
    try:
        if task.spec.files is not None:
            fence(task.spec.files, task.worker, (task.epoch, task.epoch + 1))
        meta = Meta.new(task.spec.query, task.worker, task.epoch - 1, task.order.generation)
        with store.begin() as txn:  # commits when its block ends, aborts on an exception
            worked = has_worked(task)
            if worked or task.worker not in task.order.fresh:
                report.sizes, epoch = _fill(task, txn, why=why, report=report, worked=worked)
                meta = meta.at_epoch(epoch, meta.generation)
            write_meta(txn, meta)
        store.extend_file()
        return Opened(store, lock, meta)
    except BaseException:
        store.close()
        raise


def _fill(
    task: Task, txn: lmdb.Transaction, *, why: Untrusted, report: Report, worked: bool
) -> tuple[tuple[list[int], list[int]], int]:
    """Puts the worker's bins into its new environment and returns (bins, bytes), and the epoch that this shows."""
    spec, order, worker = task.spec, task.order, task.worker
    if order.first and not worked:
        state = BinState(txn, spec.bins)
        for bin_ in np.flatnonzero(order.written.plan.routing == worker).tolist():
            spec.operator.create(bin_, spec.bins, state)
            task.progress()
        return _columns(state.write_sizes()), task.epoch - 1
    source = spec.source()
    assert source is not None, "_set_aside has checked it"
    start = time.perf_counter()
    states = order.states_at(worker)
    holders = {} if why.cause is Cause.DAMAGED else {b: at for b, at, _ in order.replicas if b in states}
    have, _ = copy_replicas(task, holders, txn, verified=True)  # a replica takes the place of a snapshot
    restored, epoch = refill(task, source, txn, states, have)
    report.recovered = str(why)
    report.ms["recover"] = (time.perf_counter() - start) * 1e3
    return _columns(restored.sizes), epoch


def _columns(sizes: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [bin_ for bin_, _ in sizes], [size for _, size in sizes]


def _open_shared(shared: Shared, task: Task, report: Report) -> Opened:
    """Opens a worker's state of the epoch before, or of this epoch if that is committed.

    Raises StateError when the store has neither, or is ahead of the epoch or of a later generation; nothing is
    touched then.
    """
    store = shared.open(task.spec.query, task.worker, report)
    meta = read_meta(store.begin())
    if meta is not None:
        _check_owner(meta, task, f"{shared.address}, worker {task.worker},")
    if meta is None or meta.epoch < task.epoch - 1:
        meta = _begin_anew(shared, store, task, meta, report)
    return Opened(store, None, meta)


def _begin_anew(shared: Shared, store: WorkerStore, task: Task, before: Meta | None, report: Report) -> Meta:
    """Commits the state that the worker has before the first epoch, or before one that it comes back in."""
    order, spec, worker = task.order, task.spec, task.worker
    is_fresh = worker in order.fresh
    if not order.first and not is_fresh:
        what = "nothing of it" if before is None else f"only epoch {before.epoch}"
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
    meta = Meta.new(spec.query, worker, task.epoch - 1, order.generation)
    forget_state(txn)
    write_meta(txn, meta)
    txn.commit()
    return meta
