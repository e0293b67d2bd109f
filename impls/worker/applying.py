"""What one transaction of a worker does with records: apply them, or queue them where their bin's state is not here."""

from collections.abc import Collection, Sequence
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa

from impls.protocol.eventtime import Partial
from impls.protocol.report import Pipelines, Queues, Report
from impls.store.entries import Changes
from impls.store.offsets import Advance, Offsets
from impls.store.queues import QueueIndex
from impls.store.records import Lengths, Results, add_to_queues, in_turn
from impls.store.state import BinState
from impls.worker.query import Task
from impls.worker.refused import accepted, named, without_set_aside
from impls.worker.turns import TimedInput, apply_timed
from impls.worker.versions import Attempt, Begin, Running, try_out


class Applying:
    """The records of one transaction: run() once; then what has changed is ready for the changelog.

    Attributes:
        changes: what was written to bins.
        queue: the operations on queues, in order.
        results, records: what the operator returned, and the records that it was given, None for none.
        advance: the next offsets of bins, to be held after the commit; None where bins do not keep them.

    Args:
        task: the worker's task.
        txn: its transaction.
        report: takes what was done.
        number: under which records are queued; numbers of a worker grow. The epoch by default.
        offsets: what bins have applied already, where input may come a second time.
        begin: begins a transaction inside the task's, for trials; None where there cannot be one.
        queues: what waits in the transaction, None to read it there.
    """

    def __init__(
        self,
        task: Task,
        txn: lmdb.Transaction,
        report: Report,
        *,
        number: int | None = None,
        offsets: Offsets | None = None,
        begin: Begin | None = None,
        queues: QueueIndex | None = None,
    ):
        self._task, self._txn, self._report, self._offsets = task, txn, report, offsets
        self._begin = begin
        self._number = task.epoch if number is None else number
        self._queues = queues
        self.changes = Changes()
        self.queue: list[tuple[int, bytes | None]] = []
        self.results = Results.none()
        self.records: pa.Table | None = None
        self.advance: Advance | None = None

    def queues(self) -> QueueIndex:
        """Returns what waits now; it is read once where it was not known."""
        if self._queues is None:
            self._queues = QueueIndex.read(self._txn)
        return self._queues

    def queued(self) -> Lengths:
        """Returns (records, bytes) of each bin's queue."""
        return self.queues().lengths

    def _requeue(self, changes: Sequence[tuple[int, bytes | None]]) -> None:
        """Takes in operations on queues, done in the transaction since queues() was called."""
        if changes:
            self.queue += changes
            self._queues = self.queues().after(changes)

    def run(self, table: pa.Table | None, blocked: Collection[int], merged: Sequence[Partial] | None = None) -> None:
        """Applies records of bins that are not `blocked` with what their queues hold, and queues the others.

        Args:
            table: the records, None for none.
            blocked: bins, of this worker or not, that run nothing now.
            merged: partials to deliver; those of the plan by default.
        """
        if table is not None:
            table = accepted(self._task, table, self._report)
        if table is not None and self._offsets is not None:
            table = self._offsets.unqueued(table)
        with named(self._task):
            if self._task.spec.operator.event_time is not None:
                self._run_timed(table, set(blocked), merged)
            else:
                self._run_plain(self._runnable(table, set(blocked)))
        self._report.records = 0 if self.records is None else len(self.records)
        self._report.results = len(self.results.keys)

    def _run_plain(self, table: pa.Table | None) -> None:
        task, versions = self._task, self._task.order.written.versions
        empty = table is None or not len(table)
        if versions is None and empty:
            return
        state = self._state()
        if versions is None:
            self.results = task.spec.operator.apply(table, state)
        else:
            self._try(table, lambda running, few: running.apply(few))
            running = Running(task, state, versions)
            self.results = running.apply(None if empty else table)
            self._report_versions(running)
        self._keep(None if empty else table, state)

    def _try(self, table: pa.Table | None, attempt: Attempt) -> None:
        """Tries a version out, if the plan says so; a failure is reported, and nothing else happens."""
        if self._begin is not None and (found := try_out(self._task, self._begin, table, attempt)):
            self._report.pipelines = found

    def _report_versions(self, running: Running) -> None:
        done, refused = self._report.pipelines, self._task.refused
        stuck = [] if refused is None else [[refused[0], text, bin_] for bin_, text in self._task.stuck]
        failed = done.failed if refused is None else [*done.failed, list(refused), *stuck]
        if running.turned or failed:
            self._report.pipelines = Pipelines(running.turned, done.tried, failed)

    def _run_timed(self, table: pa.Table | None, blocked: set[int], merged: Sequence[Partial] | None) -> None:
        partials = self._task.order.written.merged if merged is None else tuple(merged)
        new = None if self._offsets is None else self._offsets.new
        versions = self._task.order.written.versions
        running = None if versions is None else Running(self._task, self._state(), versions)
        timed = TimedInput(self._number, table, self.queues(), partials, new)
        done = apply_timed(self._task, self._txn, timed, blocked, report=self._report, running=running, trial=self._try)
        if running is not None:
            self._report_versions(running)
        self._requeue(done.queue)
        self.results = done.results
        self._keep(done.records, done.state)

    def _state(self) -> BinState:
        return BinState(self._txn, self._task.spec.bins, careful=self._task.careful)

    def _runnable(self, table: pa.Table | None, blocked: set[int]) -> pa.Table | None:
        ready = [bin_ for bin_ in self.queued() if bin_ not in blocked]
        parts = self.queues().take(self._txn, ready)
        self._requeue([(bin_, None) for bin_ in ready])
        if table is not None and blocked:
            waits = np.isin(table.column("bin").to_numpy(), np.fromiter(blocked, np.int32))
            self._requeue(add_to_queues(self._txn, self._number, table.filter(pa.array(waits))))
            table = table.filter(pa.array(~waits))
        if table is not None:
            parts.append(table)
        found = in_turn(parts) if len(parts) > 1 else (parts[0] if parts else None)
        if found is not None and self._offsets is not None:
            found = self._offsets.new(found)  # first, so that what was set aside counts once
        return None if found is None else without_set_aside(self._task, found, self._report)

    def _keep(self, records: pa.Table | None, state: BinState) -> None:
        self.records = records
        if self._offsets is not None and records is not None and len(records):
            self.advance = self._offsets.advance(records, state)
        self.changes = state.changes
        sizes = {**dict(zip(*self._report.sizes, strict=True)), **dict(state.write_sizes())}
        self._report.sizes = (list(sizes), list(sizes.values()))

    def logged(self) -> dict[str, Any]:
        """Returns the fields of a changelog frame that say what has changed."""
        none = np.empty(0, np.int64)
        return {
            "names": self.changes.names,
            "values": self.changes.values,
            "codes": np.concatenate([*self.changes.codes, none]),
            "counts": np.concatenate([*self.changes.counts, none]),
            "queue": self.queue,
        }

    def report_queues(self) -> None:
        """Puts the lengths of the queues into the report."""
        lengths = self.queued()
        if lengths:
            size = sum(size for _, size in lengths.values())
            self._report.queues = Queues((list(lengths), [n for n, _ in lengths.values()]), size)
