"""The executor without Spark: the steps of all workers in this process, one after the other."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.protocol.order import Answers, EpochOrder
from impls.protocol.plan import EpochPlan
from impls.protocol.report import Report
from impls.protocol.seats import NO_SERVERS
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task

__all__ = ["InProcessExecutor"]

Step = Callable[[Task, list[pa.Table]], tuple[Report, NDArray[np.void]]]


class InProcessExecutor:
    """Sends each worker its records, standbys included, and runs its step; `step` stands for `run_epoch`.

    Reports come back through their JSON, as from another process.
    """

    servers: Mapping[str, str] = NO_SERVERS

    def __init__(self, spec: QuerySpec, step: Step = run_epoch):
        self._spec, self._step = spec, step

    def run(self, order: EpochOrder, batch: pa.Table) -> Answers:
        """Runs an epoch on a table with the columns of `Operator.apply`."""
        begin, rows = time.perf_counter(), []
        for worker in range(order.written.workers):
            records = _records_of(order.written.plan, worker, batch)
            report, cells = self._step(Task(self._spec, order, worker), [records] if len(records) else [])
            rows.append((Report.from_json(report.to_json()), cells))
        return Answers.of(rows, build_ms=0.0, job_ms=(time.perf_counter() - begin) * 1e3)


def _records_of(plan: EpochPlan, worker: int, batch: pa.Table) -> pa.Table:
    """Returns the records that go to a worker: those of its bins, and of bins for which it is on standby."""
    bins = batch.column("bin").to_numpy()
    on_standby = [bin_ for bin_, at in plan.copies.standbys if at == worker]
    return batch.filter(pa.array((plan.routing[bins] == worker) | np.isin(bins, on_standby)))
