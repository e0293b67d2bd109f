"""Opening a worker's environment for an epoch: checked, created, or rebuilt from the checkpoint."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np

from impls.durability.frame import decode, frame_name
from impls.durability.restore import Wanted, restore
from impls.errors import CorruptStateError, StateError
from impls.protocol.report import Report
from impls.protocol.shared import WorkerStore
from impls.store.checked import get_of_epoch
from impls.store.environment import DAMAGE, Store, set_aside, store_path
from impls.store.lock import WriterLock, holds, take_lock
from impls.store.meta import Meta, new_meta, read_meta, write_meta
from impls.store.state import BinState
from impls.store.tables import OUTBOX
from impls.worker.order import StepOrder
from impls.worker.replicas import copy_replicas

__all__ = ["DAMAGE", "Opened", "check_owner", "open_worker"]


@dataclass
class Opened:
    """A worker's environment at the beginning of an epoch.

    Attributes:
        store: the open environment.
        lock: held by the one attempt that may write; None where a commit refuses all but one.
        meta: what the environment says of itself; its epoch is the one before, or this one.
    """

    store: WorkerStore
    lock: WriterLock | None
    meta: Meta

    def close(self) -> None:
        """Closes the environment and lets go of the lock."""
        self.store.close()
        _let_go(self.lock)


def open_worker(order: StepOrder, worker: int, *, map_bytes: int, distrust: str, report: Report) -> Opened:
    """Opens the environment of a worker with its state of the epoch before, or of this epoch if that is committed.

    An environment that is missing, stale or damaged, or whose writer does not end, is rebuilt from the checkpoint.

    Args:
        order: the epoch's order.
        worker: the worker.
        map_bytes: least size of the map.
        distrust: why the environment shall be rebuilt whatever it says; "" to trust it.
        report: takes the sizes of created bins and why the environment was rebuilt.

    Raises:
        StateError: it is ahead of the epoch, of a newer generation or of another query, and is left as it is; or it
            must be rebuilt and durability is "none".
    """
    if order.shared is not None:
        return order.shared.open(order, worker, report)
    path = store_path(order.state_dir, worker)
    lock = take_lock(path)
    why = distrust if lock is not None else "held by another process that does not end"
    try:
        try:
            if lock is not None and not why:
                return _trusted(order, worker, path, lock, map_bytes)
            _refuse_ahead(order, path)
        except _UnusableError as error:
            why = str(error)
        except DAMAGE as error:
            why = why or f"damaged ({error})"
        aside = _set_aside(order, worker, path, why)  # while the lock keeps others out
    except BaseException:
        _let_go(lock)
        raise
    _let_go(lock)
    return _rebuilt(order, worker, path, aside, map_bytes=map_bytes, why=why, report=report)


def _let_go(lock: WriterLock | None) -> None:
    if lock is not None:
        lock.close()


class _UnusableError(Exception):
    """The environment is not of the epoch before nor of this one."""


def _trusted(order: StepOrder, worker: int, path: Path, lock: WriterLock, map_bytes: int) -> Opened:
    store = Store.open(path, map_bytes=map_bytes, sync=order.fsync, covered=order.files is not None)
    try:
        with store.reading() as txn:
            meta = _checked(read_meta(txn), order, path)
            if order.heal:
                _heal(order, worker, meta, txn)
    except BaseException:
        store.close()
        raise
    return Opened(store, lock, meta)


def _refuse_ahead(order: StepOrder, path: Path) -> None:
    """Raises StateError when an environment that is to be given up is ahead: then it is this attempt that is old."""
    with Store.open(path, create=False) as store, store.reading() as txn:
        meta = read_meta(txn)
        if meta is not None:
            check_owner(meta, order, path)


def _checked(meta: Meta | None, order: StepOrder, path: Path) -> Meta:
    if meta is None:
        raise _UnusableError("missing")
    check_owner(meta, order, path)
    if meta.epoch < order.written.epoch - 1:
        raise _UnusableError(f"stale: epoch {meta.epoch}")
    return meta


def check_owner(meta: Meta, order: StepOrder, path: Path | str) -> None:
    """Refuses state that a newer epoch or driver has written, or that belongs to another query."""
    if meta.query != order.query:
        raise StateError(f"The state in {path} belongs to another query: give this one its own state folder.")
    if meta.epoch > order.written.epoch or meta.generation > order.generation:
        raise StateError(
            f"The state in {path} is at epoch {meta.epoch} of generation {meta.generation}, ahead of epoch "
            f"{order.written.epoch} of generation {order.generation}: this attempt is outdated."
        )


def _heal(order: StepOrder, worker: int, meta: Meta, txn: lmdb.Transaction) -> None:
    """Writes the frame of the last epoch again when it is torn or gone: the environment still has it."""
    if order.files is None:
        return
    name, kept = frame_name(meta.epoch, worker), get_of_epoch(txn, OUTBOX + b"frame", meta.epoch)
    try:
        raw = order.files.read(name)
        if raw is not None:
            decode(raw, name)
            return
    except CorruptStateError:
        pass
    if kept is not None:
        order.files.write(name, kept)


def _set_aside(order: StepOrder, worker: int, path: Path, why: str) -> Path | None:
    if order.files is None and not order.first and worker not in order.fresh:
        raise StateError(
            f"Worker {worker} needs its state of epoch {order.written.epoch - 1} in {path}, but it is {why}; with "
            'durability "none" there is no copy of it.'
        )
    return set_aside(path)


def _rebuilt(
    order: StepOrder, worker: int, path: Path, aside: Path | None, *, map_bytes: int, why: str, report: Report
) -> Opened:
    """Makes an environment in place of the one set aside, which is deleted only when that has succeeded."""
    lock = take_lock(path)
    if lock is None or (path / "data.mdb").exists():  # another attempt was quicker: judge its environment anew
        _let_go(lock)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        return open_worker(order, worker, map_bytes=map_bytes, distrust="", report=report)
    try:
        opened = _new(order, worker, path, lock, map_bytes=map_bytes, why=why, report=report)
    except BaseException:
        if aside is not None and holds(lock, path):  # else another attempt has its own environment there
            doomed = set_aside(path)
            aside.rename(path)
            shutil.rmtree(doomed or aside, ignore_errors=True)
        lock.close()
        raise
    for old in path.parent.glob(f".{path.name}-*.aside"):
        shutil.rmtree(old, ignore_errors=True)
    return opened


def _new(
    order: StepOrder, worker: int, path: Path, lock: WriterLock, *, map_bytes: int, why: str, report: Report
) -> Opened:
    """Makes a new environment: empty, created or rebuilt, committed as of the epoch before."""
    epoch = order.written.epoch - 1
    store = Store.open(path, map_bytes=map_bytes, sync=order.fsync)
    try:
        meta = new_meta(order.query, worker, epoch, order.generation)
        txn = store.begin()
        try:
            if worker not in order.fresh:
                report.sizes = _fill(order, worker, txn, why=why, report=report)
            write_meta(txn, meta)
            txn.commit()
            store.cover()
        except BaseException:
            txn.abort()
            raise
        return Opened(store, lock, meta)
    except BaseException:
        store.close()
        raise


def _fill(
    order: StepOrder, worker: int, txn: lmdb.Transaction, *, why: str, report: Report
) -> tuple[list[int], list[int]]:
    """Puts the worker's bins into its new environment and returns (bins, bytes)."""
    if order.first:
        state = BinState(txn, order.bins)
        for bin_ in np.flatnonzero(order.written.plan.routing == worker).tolist():
            order.operator.create(bin_, order.bins, state)
        sizes = state.write_sizes()
        return [bin_ for bin_, _ in sizes], [size for _, size in sizes]
    source = order.source()
    assert source is not None, "_rebuilt has checked it"
    start = time.perf_counter()
    routing = order.written.plan.routing
    queues = tuple(bin_ for bin_, _ in order.queued if routing[bin_] == worker)
    epoch = order.written.epoch - 1
    states = order.states_at(worker)
    holders = {} if why.startswith("damaged") else {b: at for b, at, _ in order.replicas if b in states}
    have, _ = copy_replicas(order, holders, txn)  # a replica takes the place of a snapshot
    sizes = restore(source, txn, epoch, Wanted(states, queues, worker, have)).sizes
    report.recovered = why
    report.ms["recover"] = (time.perf_counter() - start) * 1e3
    return [bin_ for bin_, _ in sizes], [size for _, size in sizes]
