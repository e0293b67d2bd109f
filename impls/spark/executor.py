"""The micro-batch executor of an epoch, and the Structured Streaming query that calls the driver once per epoch.

An epoch is one Spark job with a task per worker.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.driver.driver import QueryEnded, StopNeeded
from impls.errors import InvalidPlanError, StateError, UsageError
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.report import Report
from impls.spark.cause import cause_of
from impls.spark.columns import RoutingColumn, workers_column
from impls.spark.foreach import given, reports_of, schema_of
from impls.spark.readiness import in_words
from impls.spark.step import run_step
from impls.worker.cells import CELL
from impls.worker.query import QuerySpec

__all__ = ["MicroBatchExecutor", "run_job", "runner"]


class MicroBatchExecutor:
    """Sends the records of a micro-batch to their workers and runs each worker's step in a Spark task."""

    hosts: tuple[str, ...] = ()

    def __init__(self, spec: QuerySpec):
        self._spec = spec
        self._column = RoutingColumn()

    def run(self, order: EpochOrder, batch: DataFrame) -> Answers:
        """Runs an epoch on a DataFrame with the columns of `impls.spark.columns.prepared`."""
        begin = time.perf_counter()
        return run_job(self._spec, order, self._route(batch, order), begin)

    def _route(self, batch: DataFrame, order: EpochOrder) -> DataFrame:
        plan, workers = order.written.plan, order.written.workers
        if plan.shadows:  # their records go to two workers
            both = batch.withColumn("worker", F.explode(workers_column("bin", plan.routing, plan.shadows)))
            return both.repartitionById(workers, F.col("worker")).drop("worker")
        return batch.repartitionById(workers, self._column.of(plan.routing))


def run_job(spec: QuerySpec, order: EpochOrder, routed: DataFrame, begin: float) -> Answers:
    """Runs the step on records in the partitions of their workers; `begin` is when building the job began.

    Where results go to a function of the user's, it is called before this returns.
    """
    sink = spec.output
    job = routed.mapInArrow(partial(run_step, spec, order), schema_of(sink))
    built = time.perf_counter()
    with reports_of(job, sink) as reports:
        rows = reports.collect()
        done = time.perf_counter()
        found = [(Report.from_json(row["report"]), np.frombuffer(row["cells"], CELL)) for row in rows]
        answers = Answers.of(found, build_ms=(built - begin) * 1e3, job_ms=(done - built) * 1e3)
        return replace(answers, sink_ms=given(sink, job, spec.operator, order.written.epoch, answers))


_START_DEADLINE_S = 60.0
_OURS = (QueryEnded, StopNeeded, InvalidPlanError, UsageError, StateError)


def runner(
    writer: DataStreamWriter, tell: Callable[[StreamingQuery], None] = lambda _query: None
) -> Callable[[Callable[[Any, int], None], Callable[[], None]], Exception | None]:
    """Returns a function that runs a query from start to end, see `impls.driver.handle.RunQuery`.

    `tell` is called with the query at the end of each epoch.
    """

    def run(epoch_of: Callable[[Any, int], None], started: Callable[[], None]) -> Exception | None:
        signals: list[Exception] = []
        running: Future[StreamingQuery] = Future()

        def epoch(batch: Any, number: int) -> None:
            try:
                epoch_of(batch, number)
            except _OURS as signal:  # Spark hands on the text of an exception only
                signals.append(signal)
                raise
            tell(running.result(_START_DEADLINE_S))  # the first epoch may end before `start` returns

        query = writer.foreachBatch(epoch).start()
        running.set_result(query)
        started()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not signals and (told := in_words(str(error))):
                raise UsageError(told) from error
            if not signals:
                raise StateError(cause_of(str(error))) from error
        return signals[-1] if signals else None

    return run
