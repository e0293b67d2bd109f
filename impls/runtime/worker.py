"""The worker core: one epoch of one worker on its store, without Spark.

`begin` opens the epoch and moves state, `receive` takes records, `end` applies, commits, sends and reports.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.runtime import outbox
from impls.runtime.cells import make_cells
from impls.runtime.order import Report, StepOrder, counts
from impls.runtime.pull import Puller
from impls.runtime.queue import add_to_queues, queue_lengths, take_queues
from impls.runtime.records import Results, concat, from_bytes, to_bytes
from impls.runtime.state import BinState, drop_range
from impls.runtime.store import (
    MAP_BYTES,
    OUTBOX,
    SIZE,
    STATE,
    Meta,
    Store,
    at_epoch,
    bin_key,
    bin_range,
    new_meta,
    read_meta,
    store_path,
    wipe,
    write_meta,
)

__all__ = ["WorkerCore", "run_epoch"]


class WorkerCore:
    """One epoch of one worker: begin(), receive() any number of times, end(); close() whatever happened.

    Raises StateError from begin() when the stored state does not fit the epoch: it is then left untouched.
    """

    def __init__(self, order: StepOrder, worker: int, attempt: int = 0, *, map_bytes: int = MAP_BYTES):
        self.order, self.worker, self.plan = order, worker, order.written
        self.report = Report(worker, attempt, pid=os.getpid())
        self._received: list[pa.Table] = []
        self._map_bytes = map_bytes
        self._store: Store | None = None
        self._txn: lmdb.Transaction | None = None

    def begin(self) -> None:
        """Opens the store, checks its epoch, drops what the plan drops and does the planned pulls."""
        with self._phase("open"):
            self._open()
        if self.report.repeated:
            return
        with self._phase("drop"):
            self._drop()
        with self._phase("pull"):
            self._pulls = Puller(self.order, self.worker, self._transaction, self.report)
            if not self.plan.plan.on_demand:
                self._pulls.pull(self._pulls.planned())

    def receive(self, table: pa.Table) -> None:
        """Takes records of the epoch; nothing is applied before `end`."""
        if not self.report.repeated:
            self._received.append(table)

    def end(self) -> tuple[Report, NDArray[np.void]]:
        """Applies, commits, sends, and returns the report with the epoch's latency cells."""
        if not self.report.repeated:
            with self._phase("apply"):
                self._apply()
            with self._phase("commit"):
                self._commit()
        return self._after()

    def abort(self) -> None:
        """Takes back what is not committed."""
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    @property
    def map_bytes(self) -> int:
        """Size of the store's map."""
        return self._environment.map_bytes

    def close(self) -> None:
        """Aborts what is not committed and closes the store."""
        self.abort()
        if self._store is not None:
            self._store.close()
            self._store = None

    @property
    def _transaction(self) -> lmdb.Transaction:
        assert self._txn is not None, "begin() comes first"
        return self._txn

    @property
    def _environment(self) -> Store:
        assert self._store is not None, "begin() comes first"
        return self._store

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.report.ms[name] = (time.perf_counter() - start) * 1e3

    def _open(self) -> None:
        path, epoch = store_path(self.order.state_dir, self.worker), self.plan.epoch
        self._store = Store.open(path, map_bytes=self._map_bytes)
        self._txn = self._store.begin()
        meta = read_meta(self._txn)
        if meta is not None:
            _check_owner(meta, self.order, path)
        if meta is not None and meta.epoch == epoch:
            self.report.repeated = True
            self.abort()
            return
        if meta is not None and meta.epoch == epoch - 1:
            self._meta = meta
            return
        if self.worker not in self.order.fresh and not self.order.first:
            found = "nothing" if meta is None else f"epoch {meta.epoch}"
            raise StateError(f"Worker {self.worker} needs its state of epoch {epoch - 1} in {path} but found {found}.")
        self._start_new(path, had_state=meta is not None)

    def _start_new(self, path: Path, *, had_state: bool) -> None:
        if had_state:
            self.close()
            wipe(path)
            self._store = Store.open(path, map_bytes=self._map_bytes)
            self._txn = self._store.begin()
        self._meta = new_meta(self.order.query, self.worker, self.plan.epoch - 1, self.plan.generation)
        if self.order.first:
            mine = np.flatnonzero(self.plan.plan.routing == self.worker).tolist()
            state = BinState(self._transaction, self.order.bins)
            for bin_ in mine:
                self.order.operator.create(bin_, self.order.bins, state)
            sizes = state.write_sizes()
            self.report.sizes = ([b for b, _ in sizes], [s for _, s in sizes])

    def _drop(self) -> None:
        for bin_, worker in self.plan.drops:
            if worker == self.worker:
                drop_range(self._transaction, *bin_range(STATE, bin_))
                self._transaction.delete(bin_key(SIZE, bin_))

    def _apply(self) -> None:
        table = concat(self._received) if self._received else None
        if table is not None:
            self.report.rates = counts(table.column("bin").to_numpy())
        if self.plan.plan.on_demand:
            with self._phase("pull"):
                self._pulls.pull(self._pulls.by_need(self.report.rates, queue_lengths(self._transaction)[0]))
        blocked = self._pulls.missing() | set(self.plan.plan.hold)
        table = self._runnable(table, blocked)
        if table is None or not len(table):
            self._keep(Results.none(), None)
            return
        state = BinState(self._transaction, self.order.bins)
        results = self.order.operator.apply(table, state)
        sizes = state.write_sizes()
        old = dict(zip(*self.report.sizes, strict=True))
        new = {**old, **dict(sizes)}
        self.report.sizes = (list(new), list(new.values()))
        self._keep(results, table)

    def _runnable(self, table: pa.Table | None, blocked: set[int]) -> pa.Table | None:
        ready = [bin_ for bin_ in queue_lengths(self._transaction)[0] if bin_ not in blocked]
        parts = take_queues(self._transaction, ready)
        if table is not None and blocked:
            waits = np.isin(table.column("bin").to_numpy(), np.fromiter(blocked, np.int32))
            add_to_queues(self._transaction, self.plan.epoch, table.filter(pa.array(waits)))
            table = table.filter(pa.array(~waits))
        if table is not None:
            parts.append(table)
        return concat(parts) if len(parts) > 1 else (parts[0] if parts else None)

    def _keep(self, results: Results, table: pa.Table | None) -> None:
        self.report.records = 0 if table is None else len(table)
        self.report.results = len(results.keys)
        raw = outbox.pack(results)
        self._transaction.put(OUTBOX + b"results", raw)
        timed = b"" if table is None else to_bytes(table.select(["bin", "time"]))
        self._transaction.put(OUTBOX + b"times", timed)
        self.report.outbox_bytes = len(raw) + len(timed)

    def _commit(self) -> None:
        txn = self._transaction
        lengths = queue_lengths(txn)
        self.report.queued = (list(lengths[0]), [n for n, _ in lengths[0].values()])
        self.report.queue_bytes = lengths[1]
        write_meta(txn, at_epoch(self._meta, self.plan.epoch, self.plan.generation))
        txn.put(OUTBOX + b"report", self.report.to_json().encode())
        txn.commit()
        self._txn = None

    def _after(self) -> tuple[Report, NDArray[np.void]]:
        with self._environment.reading() as txn:
            results = outbox.unpack(bytes(txn.get(OUTBOX + b"results", b"")))
            times = bytes(txn.get(OUTBOX + b"times", b""))
            if self.report.repeated:
                self._recall(Report.from_json(bytes(txn.get(OUTBOX + b"report", b""))))
        with self._phase("send"):
            outbox.send(
                self.order.output, results, worker=self.worker, generation=self.plan.generation, epoch=self.plan.epoch
            )
        self.report.done_us = time.time_ns() // 1000
        self.report.lmdb_bytes = self._environment.used_bytes()
        return self.report, self._latencies(times)

    def _recall(self, stored: Report) -> None:
        stored.attempt, stored.repeated, stored.pid = self.report.attempt, True, self.report.pid
        stored.ms = {**stored.ms, **self.report.ms}
        self.report = stored

    def _latencies(self, raw: bytes) -> NDArray[np.void]:
        table = from_bytes(raw) if raw else None
        if table is None or table.column("time").null_count:
            return make_cells(np.empty(0, np.int64), self.report.done_us, np.empty(0, bool))[0]
        moved = np.isin(table.column("bin").to_numpy(), np.array(self.order.moving, np.int32))
        cells, self.report.negative = make_cells(table.column("time").to_numpy(), self.report.done_us, moved)
        return cells


def run_epoch(
    order: StepOrder, worker: int, attempt: int, tables: Iterable[pa.Table]
) -> tuple[Report, NDArray[np.void]]:
    """Runs one epoch of a worker on given records, again with a larger map whenever the store's map was full.

    Raises StateError when the stored state does not fit the epoch.
    """
    received, map_bytes = list(tables), MAP_BYTES
    while True:
        core = WorkerCore(order, worker, attempt, map_bytes=map_bytes)
        try:
            core.begin()
            for table in received:
                core.receive(table)
            return core.end()
        except lmdb.MapFullError:
            map_bytes = core.map_bytes * 2
        except lmdb.Error as error:
            raise StateError(f"Worker {worker} cannot write its state in {order.state_dir}: {error}.") from error
        finally:
            core.close()


def _check_owner(meta: Meta, order: StepOrder, path: Path) -> None:
    """Refuses state that a newer epoch or driver has written, or that belongs to another query."""
    if meta.query != order.query:
        raise StateError(f"The state in {path} belongs to another query: give this one its own state folder.")
    if meta.epoch > order.written.epoch or meta.generation > order.written.generation:
        raise StateError(
            f"The state in {path} is at epoch {meta.epoch} of generation {meta.generation}, ahead of epoch "
            f"{order.written.epoch} of generation {order.written.generation}: this attempt is outdated."
        )
