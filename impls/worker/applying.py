"""What one transaction of a worker does with records: apply them, or queue them where their bin's state is not here."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa

from impls.operators.base import Input
from impls.protocol.eventtime import EpochClock
from impls.protocol.report import EventTimes, Pipelines, Queues, Report
from impls.store.entries import Changes
from impls.store.offsets import Advance, Applied
from impls.store.queues import QueueIndex
from impls.store.records import NUMBER, PRODUCER, ROW, Results, has_column, joined
from impls.store.state import BinState
from impls.worker.inputs import queue_input, queued_inputs
from impls.worker.query import Task
from impls.worker.refused import accepted, named, without_set_aside
from impls.worker.trials import Begin, try_out
from impls.worker.versions import Running, input_of

_PLACE = ("bin", "partition", "offset", "time", ROW, PRODUCER, NUMBER)


class Applying:
    """The records of one transaction: run() once; then what has changed is ready for the changelog.

    Attributes:
        changes: what was written to bins.
        queue: the operations on queues, in order; queues: what waits behind them.
        results, records: what the operator returned, and the records that it was given, None for none.
        advance: what bins have applied now, to be held after the commit.

    Args:
        task: the worker's task.
        txn: its transaction.
        report: takes what was done.
        number: under which records are queued; numbers of a worker grow.
        queues: what waits in the transaction.
        clock: the times of the commit, None where the event time of the operator has no clock.
        applied: what bins have applied already, where input may come again.
        begin: begins a transaction inside the task's, for trials; None where there cannot be one.
    """

    def __init__(
        self,
        task: Task,
        txn: lmdb.Transaction,
        report: Report,
        *,
        number: int,
        queues: QueueIndex,
        clock: EpochClock | None = None,
        applied: Sequence[Applied] = (),
        begin: Begin | None = None,
    ):
        self._task, self._txn, self._report, self._applied = task, txn, report, applied
        self._clock = clock
        self._begin, self._number, self.queues = begin, number, queues
        self.changes = Changes()
        self.queue: list[tuple[int, bytes | None]] = []
        self.results = Results.none()
        self.records: pa.Table | None = None
        self.advance: list[Advance] = []

    def run(self, table: pa.Table | None, blocked: Collection[int]) -> None:
        """Runs the operator on bins that are not `blocked`, what waits for them first, and queues the rest.

        Args:
            table: the records, None for none.
            blocked: bins, of this worker or not, that run nothing now.
        """
        if table is not None:
            table = accepted(self._task, table, self._report)
        for known in self._applied:
            known.begin(self._txn)
            table = None if table is None else known.unqueued(table)
        with named(self._task):
            self._run(table, blocked)
        self._report.records = 0 if self.records is None else len(self.records)
        self._report.results = len(self.results.keys)

    def _run(self, table: pa.Table | None, blocked: Collection[int]) -> None:
        task, versions = self._task, self._task.order.written.versions
        inputs = self._inputs(table, blocked)
        applied = [one.records for one in inputs if one.records is not None and len(one.records)]
        moved = any(known.moved for known in self._applied)
        if not (applied or moved) and versions is None and task.spec.operator.event_time is None:
            return
        state = BinState(self._txn, task.spec.bins, careful=task.careful)
        if versions is None:
            effects = task.spec.operator.run(state, inputs)
        else:
            self._try(inputs[-1].records)
            running = Running(task, state, versions)
            effects = running.run(inputs)
            self._report_versions(running)
        if task.spec.operator.event_time is not None:
            self._report.event_time = EventTimes(late=effects.late, fired=effects.fired)
        self.results = effects.results
        self._keep(joined([_places(table) for table in applied]) if applied else None, state)

    def _inputs(self, table: pa.Table | None, blocked: Collection[int]) -> list[Input]:
        """Returns the inputs of bins that run, oldest first; those of the others are queued."""
        written, waits = self._task.order.written, np.zeros(self._task.spec.bins, bool)
        mine, waits[list(blocked)] = written.plan.routing == self._task.worker, True
        ready = [bin_ for bin_ in self.queues.lengths if not waits[bin_]]
        parts = self.queues.take(self._txn, ready)
        queued = queued_inputs(((number, self._new(part)) for number, part in parts), len(waits))
        own = Input(mine, self._task.watermark, table, self._clock)
        changes: list[tuple[int, bytes | None]] = [(bin_, None) for bin_ in ready]
        if waits.any():
            changes += queue_input(self._txn, self._number, input_of(own, waits))
            own = input_of(own, ~waits)
        if changes:
            self.queue += changes
            self.queues = self.queues.after(changes)
        records = own.records
        return [*queued, own if records is None else replace(own, records=self._new(records))]

    def _new(self, table: pa.Table) -> pa.Table:
        """Returns records without those that their bins have run before, then without those that are set aside."""
        if not len(table):
            return table
        for known in self._applied:
            table = known.new(table)
        return without_set_aside(self._task, table, self._report)

    def _try(self, table: pa.Table | None) -> None:
        """Tries a version out, if the plan says so; a failure is reported, and nothing else happens."""
        if self._begin is not None and (found := try_out(self._task, self._begin, table)):
            self._report.pipelines = found

    def _report_versions(self, running: Running) -> None:
        done, refused = self._report.pipelines, self._task.refused
        stuck = [] if refused is None else [[refused[0], text, bin_] for bin_, text in self._task.stuck]
        failed = done.failed if refused is None else [*done.failed, list(refused), *stuck]
        if running.turned or failed:
            self._report.pipelines = Pipelines(running.turned, done.tried, failed)

    def _keep(self, records: pa.Table | None, state: BinState) -> None:
        self.records = records
        some = records is not None and len(records)
        self.advance = [known.advance(records, state) for known in self._applied if some or known.moved]
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


def reported(queues: QueueIndex) -> Queues:
    """Returns queues as a part of a report."""
    lengths = queues.lengths
    size = sum(size for _, size in lengths.values())
    return Queues((list(lengths), [records for records, _ in lengths.values()]), size) if lengths else Queues()


def _places(table: pa.Table) -> pa.Table:
    return table.select([name for name in _PLACE if has_column(table, name)])
