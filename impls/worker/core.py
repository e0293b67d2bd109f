"""The worker core: one epoch of one worker on its store, without Spark.

`begin` opens the epoch and moves state, `receive` takes records, `end` applies, commits, sends and reports.
"""

import os
import time

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.durability import frame as frames
from impls.errors import CorruptStateError, StateError
from impls.faults import fault
from impls.protocol.mechanism import WorkerStore
from impls.protocol.report import Report, Written
from impls.store.bins import drop_bin, drop_piece, read_size
from impls.store.checked import get_of_epoch, put_of_epoch
from impls.store.environment import MAP_BYTES, read_meta, write_meta
from impls.store.records import Results, counts, from_bytes, times_of, to_bytes
from impls.store.tables import OUTBOX
from impls.worker.applying import Applying
from impls.worker.cells import cells_of
from impls.worker.opening import open_worker
from impls.worker.parts import Opened, Phase, Untrusted, check_queues, own_records, write_snapshot
from impls.worker.pull import Puller
from impls.worker.query import Task
from impls.worker.replicas import keep_replicas


class WorkerCore:
    """One epoch of one worker: begin(), receive() any number of times, end(); close() in any case.

    Raises StateError from begin() when the stored state does not fit the epoch: it is then left untouched.
    """

    def __init__(self, task: Task, *, map_bytes: int = MAP_BYTES, untrusted: Untrusted | None = None):
        self.task, self.spec, self.order = task, task.spec, task.order
        self.worker, self.plan = task.worker, task.order.written
        self.report = Report(task.worker, task.attempt, pid=os.getpid(), host=task.host)
        self._received: list[pa.Table] = []
        self._map_bytes, self._untrusted = map_bytes, untrusted
        self._opened: Opened | None = None
        self._txn: lmdb.Transaction | None = None
        self._results, self._times, self._frame = Results.none(), times_of(None), b""

    def begin(self) -> None:
        """Opens the store, checks its epoch, drops what the plan drops and does the planned pulls."""
        with self._phase("open"):
            self._opened = open_worker(
                self.task, map_bytes=self._map_bytes, untrusted=self._untrusted, report=self.report
            )
        if self._opened.meta.epoch == self.plan.epoch:
            self.report.repeated = True
            return
        self._txn = self._opened.store.begin()
        self._work = Applying(self.task, self._txn, self.report, begin=self._begin_inner)
        if self.order.first:
            self._report_created()
        elif self.spec.shared is None:
            check_queues(self.task, self._work.queued())
        with self._phase("drop"):
            drop_piece(self._txn)  # what turns of real-time mode have left
            for bin_, worker in self.plan.drops:
                if worker == self.worker:
                    drop_bin(self._txn, bin_, whole=self.spec.shared is None)
        with self._phase("pull"):
            # damage may have come with a pulled bin: then the source is not read again
            doubt = self._untrusted is not None
            self._pulls = Puller(self.task, self._txn, self.report, from_checkpoint=doubt)
            if not self.plan.plan.on_demand:
                self._pulls.pull_planned()

    def receive(self, table: pa.Table) -> None:
        """Takes records of the epoch; nothing is applied before `end`."""
        if not self.report.repeated or self.plan.plan.standbys:
            self._received.append(table)

    def end(self) -> tuple[Report, NDArray[np.void]]:
        """Applies, commits, makes the changelog frame durable, sends, and returns the report with latency cells."""
        if not self.report.repeated:
            with self._phase("apply"):
                self._apply()
            with self._phase("commit"):
                self._commit()
            self._fault("after-commit")
        return self._after()

    def abort(self) -> None:
        """Takes back what is not committed."""
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    @property
    def map_bytes(self) -> int:
        """Size of the store's map, or what it was asked to be."""
        return self._map_bytes if self._opened is None else self._opened.store.map_bytes

    def close(self) -> None:
        """Aborts what is not committed and closes the store."""
        self.abort()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _begin_inner(self) -> lmdb.Transaction | None:
        inner: lmdb.Transaction | None = self._environment.store.begin_inner(self._transaction)
        return inner

    @property
    def _transaction(self) -> lmdb.Transaction:
        assert self._txn is not None, "begin() comes first"
        return self._txn

    @property
    def _environment(self) -> Opened:
        assert self._opened is not None, "begin() comes first"
        return self._opened

    @property
    def _store(self) -> WorkerStore:
        return self._environment.store

    def _phase(self, name: str) -> Phase:
        return Phase(self.report.ms, name)

    def _fault(self, point: str) -> None:
        task = self.task
        fault(point, worker=task.worker, epoch=task.epoch, attempt=task.attempt, migrating=self.plan.migrating)

    def _report_created(self) -> None:
        mine = np.flatnonzero(self.plan.plan.routing == self.worker).tolist()
        self.report.sizes = (mine, [read_size(self._transaction, bin_)[1] for bin_ in mine])

    def _apply(self) -> None:
        table = own_records(self.task, self._received)
        if table is not None:
            self.report.rates = counts(table.column("bin").to_numpy())
        if self.plan.plan.on_demand:
            with self._phase("pull"):
                self._pulls.pull_needed(self.report.rates, self._work.queued())
        self._work.run(table, self._pulls.missing() | set(self.plan.plan.hold))
        self._results, self._times = self._work.results, times_of(self._work.records)
        raw, timed = self._results.to_bytes(), to_bytes(self._times)
        self._put(b"results", raw)
        self._put(b"times", timed)
        self.report.outbox_bytes = len(raw) + len(timed)

    def _commit(self) -> None:
        txn = self._transaction
        self._work.report_queues()
        if self.spec.files is not None:
            self._keep_frame()
        write_meta(txn, self._environment.meta.at_epoch(self.plan.epoch, self.order.generation))
        self._put(b"report", self.report.to_json())
        txn.commit()
        self._txn = None
        if self.spec.files is not None:
            self._store.extend_file()

    def _keep_frame(self) -> None:
        frame = frames.Frame(
            self.spec.query,
            self.worker,
            self.plan.epoch,
            self.plan.generation,
            fresh=self.worker in self.order.fresh,
            pulls=[(pull.bin, pull.source) for pull in self._pulls.done],
            **self._work.logged(),
        )
        self._frame = frame.encode()
        self.report.changelog = Written(frame.bins(), len(self._frame))
        self._put(b"frame", self._frame)

    def _after(self) -> tuple[Report, NDArray[np.void]]:
        """Does what follows the commit; a repeated attempt does it again from what the commit stored."""
        if self.report.repeated or self._environment.lock is None:  # who has the lock has just committed this epoch
            with self._store.reading() as txn:
                self._still_ours(txn)
                if self.report.repeated:
                    self._recall(txn)
        if self.spec.files is not None:
            with self._phase("log"):
                self.spec.files.write(frames.frame_name(self.plan.epoch, self.worker), self._frame)
        self._fault("before-results")
        with self._phase("send"):
            self.spec.output.send(
                self._results, bins=self.spec.bins, worker=self.worker, generation=self.plan.generation,
                epoch=self.plan.epoch,
            )  # fmt: skip
        self.report.done_us = time.time_ns() // 1000
        with self._phase("snapshot"):
            self._snapshot()
        with self._phase("replicate"):
            keep_replicas(self.task, self._received, self.report)
        self.report.lmdb_bytes = self._store.used_bytes()
        self._fault("before-report")
        cells, self.report.negative = cells_of(self._times, self.report.done_us, self.order.moving)
        return self.report, cells

    def _put(self, name: bytes, value: bytes) -> None:
        put_of_epoch(self._transaction, OUTBOX + name, self.plan.epoch, value)

    def _stored(self, txn: lmdb.Transaction, name: bytes) -> bytes:
        value = get_of_epoch(txn, OUTBOX + name, self.plan.epoch)
        if value is None:
            raise CorruptStateError(f"The {name.decode()} of epoch {self.plan.epoch} are not where they were stored.")
        return value

    def _still_ours(self, txn: lmdb.Transaction) -> None:
        meta = read_meta(txn)
        if meta is None or meta.epoch != self.plan.epoch:
            raise StateError(
                f"Worker {self.worker} was overtaken in epoch {self.plan.epoch}: this attempt is outdated."
            )

    def _snapshot(self) -> None:
        if self.spec.files is not None and self.order.snapshot:
            with self._store.reading(buffers=False) as txn:
                self._still_ours(txn)
                write_snapshot(self.task, txn, self.report)

    def _recall(self, txn: lmdb.Transaction) -> None:
        """Takes over what the attempt that committed has stored."""
        self._results = Results.from_bytes(self._stored(txn, b"results"))
        self._times = from_bytes(self._stored(txn, b"times"))
        if self.spec.files is not None:
            self._frame = self._stored(txn, b"frame")
        stored = Report.from_json(self._stored(txn, b"report"))
        stored.attempt, stored.repeated, stored.pid = self.report.attempt, True, self.report.pid
        stored.ms = {**stored.ms, **self.report.ms}
        self.report = stored
