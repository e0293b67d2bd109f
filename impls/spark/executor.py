"""The micro-batch executor: one Spark job per epoch, a task per worker."""

import time
from functools import partial

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.protocol.executor import Answers
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan
from impls.protocol.report import Report
from impls.spark.columns import worker_column, workers_column
from impls.spark.step import REPORT_SCHEMA, run_step
from impls.worker.cells import CELL
from impls.worker.query import QuerySpec

__all__ = ["MicroBatchExecutor"]


class MicroBatchExecutor:
    """Sends the records of a micro-batch to their workers and runs each worker's step in a Spark task."""

    def __init__(self, spec: QuerySpec):
        self._spec = spec
        self._routed: tuple[bytes, Column] | None = None

    def run(self, order: EpochOrder, batch: DataFrame) -> Answers:
        """Runs an epoch on a DataFrame with the columns of `impls.spark.columns.prepared`."""
        begin = time.perf_counter()
        job = self._route(batch, order).mapInArrow(partial(run_step, self._spec, order), REPORT_SCHEMA)
        built = time.perf_counter()
        rows = job.collect()
        done = time.perf_counter()
        answers = [(Report.from_json(row["report"]), np.frombuffer(row["cells"], CELL)) for row in rows]
        return Answers.of(answers, build_ms=(built - begin) * 1e3, job_ms=(done - built) * 1e3)

    def _route(self, batch: DataFrame, order: EpochOrder) -> DataFrame:
        plan, workers = order.written.plan, order.written.workers
        if plan.shadows:  # their records go to two workers
            both = batch.withColumn("worker", F.explode(workers_column("bin", plan.routing, plan.shadows)))
            return both.repartitionById(workers, F.col("worker")).drop("worker")
        return batch.repartitionById(workers, self._worker_column(plan))

    def _worker_column(self, plan: EpochPlan) -> Column:
        """Returns the expression of a bin's worker, that of the last epoch where the routing is the same."""
        name = plan.routing.tobytes()
        if self._routed is None or self._routed[0] != name:
            self._routed = (name, worker_column("bin", plan.routing))
        return self._routed[1]
