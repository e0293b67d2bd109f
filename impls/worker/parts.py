"""Parts of a worker's step: its opened environment, its records, its snapshot, and the time of a phase."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import lmdb
import pyarrow as pa

from impls.durability import snapshot as snapshots
from impls.faults import fault
from impls.protocol.mechanism import WorkerStore
from impls.protocol.report import Report, Written
from impls.store.environment import Meta, store_path
from impls.store.lock import WriterLock
from impls.store.pages import leaves_of
from impls.store.records import concat
from impls.worker.query import Task

_NO_SPACE_BYTES = 1 << 20


class Phase:
    """Stores the milliseconds between entering and leaving in `ms` under a name, unless an exception was raised.

    A class: as generators the ten phases of an epoch cost a worker 8 to 16 µs more.
    """

    __slots__ = ("_ms", "_name", "_start")

    def __init__(self, ms: dict[str, float], name: str):
        self._ms, self._name = ms, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._ms[self._name] = (time.perf_counter() - self._start) * 1e3


def write_snapshot(task: Task, txn: lmdb.Transaction, report: Report) -> None:
    """Writes the images of the bins that the order names and that this worker holds or queues records of.

    `txn` reads, without buffers, what the epoch has committed.
    """
    spec, order, written = task.spec, task.order, task.order.written
    here = set(order.states_at(task.worker)) | set(report.moves.bins)  # sources of this epoch's pulls included
    images = []
    with leaves_of(store_path(task.state_dir, task.worker), txn) as leaves:
        for bin_ in order.snapshot:
            is_routed = int(written.plan.routing[bin_]) == task.worker
            if bin_ in here or is_routed:
                images.append(snapshots.image_of(txn, bin_, state=bin_ in here, queue=is_routed, leaves=leaves))
    if images and spec.files is not None:
        raw = snapshots.encode(spec.query, task.worker, task.epoch, images)
        fault("during-snapshot", **task.where)
        spec.files.write(snapshots.snapshot_name(task.epoch, task.worker, order.generation), raw)
        report.snapshot = Written([image.bin for image in images], len(raw))


def own_records(task: Task, received: Sequence[pa.Table]) -> pa.Table | None:
    """Returns the epoch's records without those that only a replica here processes, None when there are none."""
    plan, tables = task.order.written.plan, received
    if any(worker == task.worker for _, worker in plan.copies.standbys):
        tables = [t.filter(pa.array(plan.routing[t.column("bin").to_numpy()] == task.worker)) for t in tables]
    return concat(list(tables)) if tables else None


def free_space(folder: str) -> str:
    """Returns the free space of the disk: LMDB calls a page that was written in part an input/output error."""
    free = shutil.disk_usage(folder).free
    return "No space left on device" if free < _NO_SPACE_BYTES else f"{free >> 20} MiB are free"


class Cause(Enum):
    """What is wrong with an environment."""

    MISSING = "missing"
    STALE = "stale"
    DAMAGED = "damaged"
    HELD = "held by another process that does not end"
    DEADLY = "two attempts died in it"


@dataclass(frozen=True, slots=True)
class Untrusted:
    """A cause with what was found; as text it is the reason that a report gives."""

    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause.value}: {self.detail}" if self.detail else self.cause.value


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
        if self.lock is not None:
            self.lock.close()
