"""The micro-batch executor, on one machine and on a cluster, and the query that calls the driver once per epoch.

An epoch is one Spark job with a task per worker.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from py4j.java_gateway import java_import
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import ForeachBatchFunction

from impls.driver.epochs import QueryEnded, StopNeeded
from impls.errors import InvalidPlanError, StateError, UsageError
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.seats import NO_SERVERS, rounds_needed, seat_workers, workers_of_seats
from impls.spark.cause import cause_of
from impls.spark.cluster import registered
from impls.spark.columns import RoutingColumn, worker_column, workers_column
from impls.spark.job import StepJob
from impls.spark.master import is_local
from impls.spark.readiness import SEAT, Anchor, in_words
from impls.worker.query import QuerySpec


class MicroBatchExecutor:
    """Sends the records of a micro-batch to their workers and runs each worker's step in a Spark task."""

    servers: Mapping[str, str] = NO_SERVERS

    def __init__(self, spec: QuerySpec):
        self._job = StepJob(spec)
        self._column = RoutingColumn()

    def run(self, order: EpochOrder, batch: DataFrame) -> Answers:
        """Runs an epoch on a DataFrame with the columns of `impls.spark.columns.prepared`."""
        begin = time.perf_counter()
        return self._job.run(order, self._route(batch, order), begin)

    def _route(self, batch: DataFrame, order: EpochOrder) -> DataFrame:
        plan, workers = order.written.plan, order.written.workers
        if plan.copies.standbys:  # their records go to two workers
            both = batch.withColumn("worker", F.explode(workers_column("bin", plan.routing, plan.copies.standbys)))
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


_LOG = logging.getLogger(__package__)
_EXECUTOR_DEADLINE_S = 60.0
_POLL_S = 0.1
_COMING_UP_S = 60.0


class SeatedExecutor:
    """Sends the records of a micro-batch to the seats of their workers and runs each worker's step there.

    The seats are made anew when executors come or go, and when workers need more of them, or fewer.
    """

    def __init__(self, spec: QuerySpec):
        self._job = StepJob(spec)
        self._anchor: Anchor | None = None
        self._executors: frozenset[str] = frozenset()
        self._slots = self._rounds = 1  # tasks that run at once; seats for each of them
        self._began = time.monotonic()
        self._sitting: tuple[Any, ...] = ()  # for which the rounds were last looked at
        self._seat_of: tuple[int, ...] = ()
        self._servers: dict[str, str] = {}
        self._column = RoutingColumn()

    @property
    def servers(self) -> Mapping[str, str]:
        """By host with a seat the address at which it hands out bins; empty before the first epoch."""
        return {host: self._servers.get(host, "") for host in sorted(self._anchor.hosts)} if self._anchor else {}

    def run(self, order: EpochOrder, batch: DataFrame) -> Answers:
        """Runs an epoch on a DataFrame with the columns of `impls.spark.columns.prepared`."""
        begin = time.perf_counter()
        anchor = self._anchored(batch, order)
        self._seat_of = _seats_for(order, anchor, self._seat_of)
        seats = workers_of_seats(self._seat_of, len(anchor.hosts))
        seating = replace(order.seating, seats=seats, servers=tuple(sorted(self._servers.items())))
        order = replace(order, seating=seating)
        answers = self._job.run(order, anchor.seated(self._route(batch, order, anchor)), begin)
        self._servers |= {report.host: report.server for report in answers.reports if report.server}
        return answers

    def _anchored(self, batch: DataFrame, order: EpochOrder) -> Anchor:
        """Returns an anchor on the executors that there are, with a seat for each worker, and room for those at home.

        It is made anew when executors have come or gone, or when workers need more rounds of slots, or fewer. In the
        first minute, while executors come one after the other, workers spread over them.
        """
        workers, homes, owners = order.written.workers, dict(order.seating.homes), _owners(order)
        found, sitting = _await_executors(batch.sparkSession), (workers, homes, owners, bool(order.moving))
        if self._anchor is None or found != self._executors:
            self._slots, self._executors = _slots(batch), found
            self._anchor = self._made(batch, -(-workers // self._slots))
        elif sitting == self._sitting:
            return self._anchor
        self._sitting = sitting
        staying = owners if time.monotonic() - self._began > _COMING_UP_S else frozenset()
        needed = rounds_needed(self._anchor.hosts, self._rounds, workers, homes, staying)
        if needed > self._rounds or (needed < self._rounds and not order.moving):
            self._anchor = self._made(batch, needed)
        return self._anchor

    def _made(self, batch: DataFrame, rounds: int) -> Anchor:
        """Returns a new anchor in place of the one there is, with so many seats for each slot."""
        if self._anchor is not None:
            self._anchor.drop()
        self._rounds = rounds
        anchor = Anchor.make(batch.sparkSession, rounds * self._slots)
        _LOG.info("%s seats on %s", len(anchor.hosts), ", ".join(sorted(set(anchor.hosts))))
        return anchor

    def _route(self, batch: DataFrame, order: EpochOrder, anchor: Anchor) -> DataFrame:
        """Returns the records with the name of their worker's seat, one row for each worker that processes them."""
        plan = order.written.plan
        names = np.array([anchor.names[seat] for seat in self._seat_of], np.int32)
        if plan.copies.standbys:
            both = batch.withColumn("worker", F.explode(workers_column("bin", plan.routing, plan.copies.standbys)))
            return both.withColumn(SEAT, worker_column("worker", names)).drop("worker")
        return batch.withColumn(SEAT, self._column.of(names[plan.routing]))


def _owners(order: EpochOrder) -> frozenset[int]:
    """Returns the workers that hold state."""
    return frozenset(range(order.written.workers)) - set(order.fresh)


def _seats_for(order: EpochOrder, anchor: Anchor, before: tuple[int, ...]) -> tuple[int, ...]:
    workers, homes, owners = order.written.workers, dict(order.seating.homes), _owners(order)
    return seat_workers(
        anchor.hosts, workers, homes, owners=owners, before=dict(enumerate(before)), allowed=order.seating.hosts
    )


def _await_executors(spark: SparkSession) -> frozenset[str]:
    """Returns what is registered, an executor among it; raises StateError when none comes within a minute."""
    end = time.monotonic() + _EXECUTOR_DEADLINE_S
    while len(found := registered(spark)) <= 1:  # the driver is in it
        if time.monotonic() > end:
            raise StateError(f"The cluster has had no executor for {_EXECUTOR_DEADLINE_S:.0f} s: the query ends.")
        time.sleep(_POLL_S)
    return found


def _slots(batch: DataFrame) -> int:
    """Returns how many tasks the cluster runs at once."""
    return max(1, int(batch.sparkSession.sparkContext.defaultParallelism))


def executor_for(master: str | None, spec: QuerySpec) -> MicroBatchExecutor | SeatedExecutor:
    """Returns the executor for a Spark master: on a cluster it seats the workers."""
    return MicroBatchExecutor(spec) if is_local(master) else SeatedExecutor(spec)
