"""The query of real-time mode, and what keeps it running: start, epoch after epoch, and start again after a failure.

The router runs in the JVM (`Router.java`), as nothing in Spark's SQL can look at the time while no row comes.
"""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.closing import close_all
from impls.driver.epochs import QueryEnded, StopNeeded
from impls.driver.handle import RunQuery
from impls.errors import InvalidPlanError, StateError, UsageError
from impls.protocol.session import Hello
from impls.realtime.executor import RealTimeExecutor, SessionLost, SlotsNeeded
from impls.realtime.flow import Flow
from impls.realtime.link import Switchboard
from impls.realtime.wire import CONSTANTS
from impls.spark.cause import cause_of, silence
from impls.spark.compiled import new_object
from impls.spark.realtime.ends import end_processes, stop_query
from impls.spark.realtime.settings import Wiring
from impls.spark.realtime.steps import DONE_SCHEMA, SENT_SCHEMA, MakeWorker, own_step, worker_maker
from impls.spark.session import local_location
from impls.spark.source import InputLog
from impls.spark.topics import Topics
from impls.worker.query import QuerySpec

_SOURCE = Path(__file__).with_name("Router.java")
_BESIDE = ("Reader.java", "Packer.java", "Link.java", "Workers.java", "Flow.java")
_IDLE_US = 100
_LINGER_US = 2_000


def routed(df: DataFrame, wiring: Wiring, *, idle_us: int = _IDLE_US, linger_us: int = _LINGER_US) -> DataFrame:
    """Returns how many blobs of records each worker has been sent, with the columns of `SENT_SCHEMA`.

    Args:
        df: records, as those of `wiring.schema`; rows without a bin are left out.
        wiring: for the router, which joins its switchboard.
        idle_us: records are packed when no other has come for so many microseconds.
        linger_us: records are packed when the first of them has waited so long.
    """
    spark = df.sparkSession
    sql: Any = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    bytes_ = sql.catalyst.encoders.ExpressionEncoder.apply(sql.Encoders.BINARY())
    schema = df._jdf.schema()
    row = sql.catalyst.analysis.GetColumnByOrdinal(0, schema)  # so that a record is not taken apart into Java's objects
    as_they_are = sql.catalyst.encoders.ExpressionEncoder(bytes_.encoder(), bytes_.objSerializer(), row)
    router = new_object(
        spark, _SOURCE, wiring.address, wiring.key, wiring.run, str(wiring.flow), schema.json(), wiring.slots,
        idle_us, linger_us, beside=_BESIDE, constants=CONSTANTS, in_tasks=True,
    )  # fmt: skip
    rows = getattr(df.select(F.struct("*").alias("record"))._jdf, "as")(as_they_are)
    sent = spark._jsparkSession.parseDataType(SENT_SCHEMA.json())
    return DataFrame(rows.mapPartitions(router, sql.Encoders.row(sent)), spark)


_SINK = "noop"


def _records_schema(frame: DataFrame) -> pa.Schema:
    """Returns the Arrow schema of records as tasks get them."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def _worker_query(frame: DataFrame, make: MakeWorker, wiring: Wiring, batch: str) -> DataStreamWriter:
    """Returns the query, not started and without a place for Spark's checkpoint.

    Args:
        frame: records with the columns of `impls.spark.columns.prepared`.
        make: makes the worker of an S task.
        wiring: for both steps, with the `_records_schema` of the frame.
        batch: duration of a batch of Spark, as in "60 seconds".
    """
    sent = routed(frame, wiring).repartitionById(wiring.slots, F.col("slot"))
    owned = sent.mapInArrow(partial(own_step, make, wiring), DONE_SCHEMA)
    writer: Any = owned.writeStream.format(_SINK).outputMode("update")  # its type does not know realTime yet
    triggered: DataStreamWriter = writer.trigger(realTime=batch)
    return triggered


_SIGNALS = (QueryEnded, StopNeeded, InvalidPlanError, UsageError, StateError)
_FAILURES_MAX = 5
QUIET_S = 0.2  # between epochs
_BUSY_S = 0.001  # the same while a migration runs
_LOOK_S = 0.01  # a command that comes between epochs waits no longer
_SESSION_DEADLINE_S = 120.0
_GONE_DEADLINE_S = 10.0
_STAGE_DEADLINE_S = 10.0
_LOG = logging.getLogger(__package__)
_TOO_FEW_SLOTS = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"
_LOGGERS = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "shuffle.streaming",
    "sql.execution.datasources.v2",
    "sql.execution.python",
    "sql.execution.streaming.runtime",
    "util.ErrorNotifier",
    "util.Utils",
)


@dataclass(frozen=True)
class RealTimeQuery:
    """What is constant for all starts of a query.

    Attributes:
        frame: records with the columns of `impls.spark.columns.prepared`.
        spec: the query, for its workers.
        switchboard: of the driver, made with `routers_counted`.
        name, location: the query's name in Spark, and the folder of Spark's own checkpoint.
        batch: duration of a batch of Spark, as in "60 seconds".
        topics: see `impls.spark.input.QueryInput.told_apart`.
    """

    frame: DataFrame
    spec: QuerySpec
    switchboard: Switchboard
    name: str
    location: str
    batch: str
    topics: Topics

    def writer(self, slots: int) -> DataStreamWriter:
        """Returns the query with so many slots, not started."""
        silence(self.frame.sparkSession, _LOGGERS)  # the runner says in one sentence why a query has failed
        schema = _records_schema(self.frame)
        wiring = Wiring(self.switchboard.address, self.switchboard.key, secrets.token_hex(4), slots, schema)
        Flow.create(wiring.flow, slots)
        writer = _worker_query(self.frame, worker_maker(self.spec), wiring, self.batch)
        return writer.queryName(self.name).option("checkpointLocation", local_location(self.location))


def runner_of(
    query: RealTimeQuery,
    executor: RealTimeExecutor,
    *,
    slots: int,
    next_epoch: Callable[[], int],
    busy: Callable[[], bool],
    quiet_s: Callable[[], float] = lambda: QUIET_S,
    resized: Callable[[int], None] = lambda _slots: None,
) -> RunQuery:
    """Returns a function that runs a query from start to end, see `impls.driver.handle.RunQuery`.

    Args:
        query: what to run.
        executor: the executor of epochs, on the same switchboard.
        slots: most workers at first; a plan that has more starts the query again.
        next_epoch: returns the number of the epoch to run.
        busy: returns whether there is more to do than to look around, so that the next epoch begins at once.
        quiet_s: returns for how many seconds no epoch begins behind the last one where there is nothing to do.
        resized: called with the number of slots when a plan had more workers.
    """
    return _Runner(query, executor, slots, next_epoch, busy=busy, quiet_s=quiet_s, resized=resized).run


class _Runner:
    def __init__(
        self,
        query: RealTimeQuery,
        executor: RealTimeExecutor,
        slots: int,
        next_epoch: Callable[[], int],
        *,
        busy: Callable[[], bool],
        quiet_s: Callable[[], float],
        resized: Callable[[int], None],
    ):
        self._query, self._executor, self._slots = query, executor, slots
        self._next_epoch, self._busy, self._quiet_s, self._resized = next_epoch, busy, quiet_s, resized
        self._input = InputLog(query.location, query.topics)
        self._running: StreamingQuery | None = None
        executor.check = self._check

    def run(self, epoch_of: Callable[[Any, int], None], started: Callable[[], None]) -> Exception | None:
        """Runs the query until a signal ends it; a failure is tried again, five times in a row without an epoch."""
        self._failures = 0
        try:
            self._start()
            started()
            while True:
                self._epoch_on(epoch_of)
                self._end()
                self._start()
        except _SIGNALS as signal_:
            return signal_
        finally:
            self._end()

    def _start(self) -> None:
        self._input.put_forward()
        self._running = self._query.writer(self._slots).start()

    def _epoch_on(self, epoch_of: Callable[[Any, int], None]) -> None:
        """Runs epochs; returns when the query is to be started again."""
        try:
            self._await_session()
            while True:
                epoch_of(None, self._next_epoch())
                self._input.keep(self._executor.needed)
                self._failures = 0
                self._pause()
                self._check()
        except SlotsNeeded as needed:
            self._slots = needed.workers
            self._resized(self._slots)
        except SessionLost as lost:
            self._count(lost)

    def _await_session(self) -> None:
        end = time.monotonic() + _SESSION_DEADLINE_S
        while not self._executor.complete:
            self._executor.take(_LOOK_S)
            self._executor.check_tasks()
            self._check()
            if time.monotonic() > end:
                raise SessionLost(f"Spark did not start all tasks of the query in {_SESSION_DEADLINE_S:.0f} s")

    def _pause(self) -> None:
        """Waits until the next epoch, and takes in what tasks say."""
        begun = time.monotonic()
        while time.monotonic() < begun + self._quiet_s():
            if self._busy():
                time.sleep(_BUSY_S)
                return
            self._executor.take(_LOOK_S)
            if not self._executor.complete:  # a task may have died
                self._check()

    def _check(self) -> None:
        """Raises SessionLost when the query has ended, with the words of a task if one has said that it failed."""
        if self._running is None or not self._running.isActive:
            while self._executor.take(0):  # a task says with what it fails before Spark ends the query
                pass
            self._executor.check_tasks()
            raise SessionLost

    def _count(self, lost: SessionLost) -> None:
        """Counts a failure; raises its cause when there were too many, or when it would be the same again."""
        error = self._running.exception() if self._running is not None else None
        if _TOO_FEW_SLOTS in str(error):
            raise UsageError(
                f"Real-time mode runs all its tasks at once, one for each input partition and each of {self._slots} "
                "slots: start the session with threads=real_time_threads(partitions, slots), or give fewer slots."
            )
        self._failures += 1
        told = str(lost) or (cause_of(str(error)) if error is not None else "the query ended without a word")
        _LOG.warning("The tasks of the query are started again: %s", told)
        if self._failures >= _FAILURES_MAX:
            raise StateError(f"The query failed {_FAILURES_MAX} times in a row, the last time by this: {told}")

    def _end(self) -> None:
        """Ends the query and the processes of its tasks, whose state is free then."""
        if self._running is None:
            return
        running, self._running = self._running, None
        ends = (self._end_tasks, partial(stop_query, running), self._executor.end_session)
        close_all(ends, "query in real time")

    def _end_tasks(self) -> None:
        while self._executor.take(0):
            pass
        end_processes(self._executor.unclosed)  # first: they would complain that Spark has closed their connections
        end = time.monotonic() + _GONE_DEADLINE_S
        while self._executor.pids and time.monotonic() < end:  # so that nobody takes them for those of the next start
            self._executor.take(_LOOK_S)


def routers_counted(spark: SparkSession) -> Callable[[Hello], Hello]:
    """Returns a function that adds to a router's Hello how many there are, which is known by its stage."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()

    def counted(hello: Hello) -> Hello:
        if hello.role != "router":
            return hello
        end = time.monotonic() + _STAGE_DEADLINE_S
        while (info := tracker.getStageInfo(hello.stage)).isEmpty():
            if time.monotonic() > end:
                raise StateError(f"Spark does not know stage {hello.stage} of its task.")
            time.sleep(_BUSY_S)
        return replace(hello, of=int(info.get().numTasks()))

    return counted
