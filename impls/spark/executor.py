"""The micro-batch executor of an epoch, and the Structured Streaming query that calls the driver once per epoch.

An epoch is one Spark job with a task per worker.
"""

import time
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import java_import
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import ForeachBatchFunction

from impls.driver.driver import QueryEnded, StopNeeded
from impls.errors import InvalidPlanError, StateError, UsageError
from impls.protocol.order import Answers, EpochOrder
from impls.spark.cause import cause_of
from impls.spark.columns import RoutingColumn, workers_column
from impls.spark.job import StepJob
from impls.spark.readiness import in_words
from impls.worker.query import QuerySpec

__all__ = ["MicroBatchExecutor", "runner"]


class MicroBatchExecutor:
    """Sends the records of a micro-batch to their workers and runs each worker's step in a Spark task."""

    hosts: tuple[str, ...] = ()

    def __init__(self, spec: QuerySpec):
        self._job = StepJob(spec)
        self._column = RoutingColumn()

    def run(self, order: EpochOrder, batch: DataFrame) -> Answers:
        """Runs an epoch on a DataFrame with the columns of `impls.spark.columns.prepared`."""
        begin = time.perf_counter()
        return self._job.run(order, self._route(batch, order), begin)

    def _route(self, batch: DataFrame, order: EpochOrder) -> DataFrame:
        plan, workers = order.written.plan, order.written.workers
        if plan.shadows:  # their records go to two workers
            both = batch.withColumn("worker", F.explode(workers_column("bin", plan.routing, plan.shadows)))
            return both.repartitionById(workers, F.col("worker")).drop("worker")
        return batch.repartitionById(workers, self._column.of(plan.routing))


class _Epochs(ForeachBatchFunction):
    """What Spark calls in each epoch. Spark's own makes a session anew every time, by some ten calls of the JVM."""

    _of: SparkSession | None = None

    def call(self, jdf: Any, batch_id: int) -> None:
        """Calls the function with the epoch's records, which all have the session of the query."""
        self._of = self._of or SparkSession(self.session.sparkContext, jdf.sparkSession())
        self.func(DataFrame(jdf, self._of), batch_id)


def _calling(writer: DataStreamWriter, function: Callable[[Any, int], None]) -> DataStreamWriter:
    """Does what `writer.foreachBatch(function)` does."""
    gateway: Any = writer._spark.sparkContext._gateway
    java_import(gateway.jvm, "org.apache.spark.sql.execution.streaming.sources.*")
    gateway.jvm.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, _Epochs(writer._spark, function))
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer


_OURS = (QueryEnded, StopNeeded, InvalidPlanError, UsageError, StateError)


def runner(
    writer: DataStreamWriter, tell: Callable[[], None] = lambda: None
) -> Callable[[Callable[[Any, int], None], Callable[[], None]], Exception | None]:
    """Returns a function that runs a query from start to end, see `impls.driver.handle.RunQuery`.

    `tell` is called at the end of each epoch.
    """

    def run(epoch_of: Callable[[Any, int], None], started: Callable[[], None]) -> Exception | None:
        signals: list[Exception] = []

        def epoch(batch: Any, number: int) -> None:
            try:
                epoch_of(batch, number)
            except _OURS as signal:  # Spark hands on the text of an exception only
                signals.append(signal)
                raise
            tell()

        query = _calling(writer, epoch).start()
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
