"""Spark's own stateful count as a running query that takes the same commands as `impls.driver.handle`."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.driver.observed import OnEvent, OnLine
from impls.errors import StateError
from impls.mechanisms.native_spark.intervals import (
    BinlessQuery,
    EpochListener,
    found_nothing,
    idle_polls,
    newest_epoch,
    seconds_of,
    state_bytes,
)  # fmt: skip
from impls.mechanisms.native_spark.native import Native
from impls.mechanisms.native_spark.processor import count_by_processor
from impls.worker.output import Output

_POLL_S = 0.05
_IDLE_POLLS = 10  # a batch without data follows, where windows can be closed
_TOLD_DEADLINE_S = 10.0
_PARTITIONS = "spark.sql.shuffle.partitions"
Answers = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class RecordSource:
    """Where the query reads: `records()` makes a new stream of keys for every start.

    Its first `preloaded` records, one per key, create the state and are no part of the load.
    """

    records: Callable[[], DataFrame]
    preloaded: int


class NativeQuery(BinlessQuery):
    """A stateful count of Spark's own; a supervisor thread executes commands by restarting it.

    Its workers are its partitions. A mechanism that does not repartition leaves their number as it is.
    With `answers` it is another query than the count: a function from records to the columns that go to Kafka.
    """

    def __init__(
        self, spark: SparkSession, source: RecordSource, output: Output, checkpoint: Path, *,
        native: Native, workers: int, bins: int,
        on_epoch: OnLine,
        on_event: OnEvent,
        answers: Answers | None = None,
        trigger: str = "0 seconds",
    ):  # fmt: skip
        super().__init__("Spark's own query", workers, bins, on_event)
        self._trigger, self._interval_s = trigger, seconds_of(trigger)
        self._answers = answers or partial(_count, operator=native.operator)
        self._mode = "append" if answers else "update"
        self._spark, self._source, self._output, self._checkpoint = spark, source, output, checkpoint
        self._native, self._on_epoch = native, on_epoch
        self._restarted: str | None = None  # a command whose first epoch is not done
        self._resumed = -1  # the last epoch that was committed before the last start
        self._last_epoch, self._preloaded = -1, 0
        self._run = ""  # Spark's id of the query since its last start
        self._idle = 0  # polls in a row that found no epoch under way
        self._listener = EpochListener(self._progress)
        spark.streams.addListener(self._listener)
        self._begin(self._supervise, "native-supervisor")

    @property
    def _migrating(self) -> bool:
        return self._pending is not None or self._restarted is not None

    def _wanted(self, workers: int) -> int:
        return super()._wanted(workers) if self._native.repartitions else self._workers

    def status(self) -> dict[str, Any]:
        """Returns epoch, partitions, whether a restart is under way, whether all input has had its effect (settled)."""
        return self._status(self._last_epoch, settled=self._idle >= _IDLE_POLLS + 2 * self._interval_s / _POLL_S)

    def _start(self) -> StreamingQuery:
        with self._lock:  # so that no epoch is told of before it is known whose it is
            self._resumed = self._committed()
            self._on_event("query_start", {"partitions": self._workers})
            query = self._writer().trigger(processingTime=self._trigger).start()
            self._run = str(query.runId)
            return query

    def _finish_last_epoch(self) -> None:
        """Runs the epoch that a stop has cut off: state with one cannot be repartitioned exactly once.

        Only that one: what has come since waits for the new number of partitions.
        """
        if newest_epoch(self._checkpoint / "offsets") > self._committed():
            self._writer().trigger(once=True).start().awaitTermination()

    def _committed(self) -> int:
        return newest_epoch(self._checkpoint / "commits")

    def _committed_since(self) -> bool:
        """Returns whether the last start has committed an epoch; asked at every poll, so no folder is listed."""
        return (self._checkpoint / "commits" / str(self._resumed + 1)).exists()

    def _writer(self) -> DataStreamWriter:
        self._spark.conf.set(_PARTITIONS, str(self._workers))
        return (
            self._answers(self._source.records())
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self._output.bootstrap)
            .option("topic", self._output.topic)
            .option("checkpointLocation", str(self._checkpoint))
            .outputMode(self._mode)
        )

    def _supervise(self) -> None:
        try:
            self._prepare()
            query = self._start()
            while not self._stopping:
                if self._pending is not None:
                    query = self._restart(query)
                _raise_if_ended(query)
                self._look(query)
                time.sleep(_POLL_S)
            query.stop()
            self._await_told()
        except Exception as error:
            self._failure = StateError(f"Spark's own query failed: {_first_line(error)}")
        finally:
            with contextlib.suppress(Exception):  # the session may be gone already
                self._spark.streams.removeListener(self._listener)
            self._ended.set()

    def _await_told(self) -> None:
        """Waits until Spark's listeners have been told of the last committed epoch, if they ever are."""
        end = time.monotonic() + _TOLD_DEADLINE_S
        while self._last_epoch < self._committed() and time.monotonic() < end:
            time.sleep(_POLL_S)

    def _prepare(self) -> None:
        """Does what comes before the first start: nothing."""

    def _look(self, query: StreamingQuery) -> None:
        """Sees how the query goes on."""
        message = query.status["message"]
        self._end_restart(message)
        self._idle = idle_polls(self._idle, message, apart=self._interval_s > 0)

    def _restart(self, query: StreamingQuery) -> StreamingQuery:
        with self._lock:
            assert self._pending is not None
            id_, partitions = self._pending
        query.stop()
        self._on_event("query_stop", {})
        self._on_event("migration_begin", {"id": id_, "epoch": self._last_epoch + 1, "label": ""})
        if partitions != self._workers and (self._checkpoint / "state").is_dir():  # a projection has none
            begun = time.monotonic()
            self._finish_last_epoch()
            self._on_event("epoch_finished", {"id": id_, "seconds": time.monotonic() - begun})
            begun = time.monotonic()
            self._spark._streamingCheckpointManager.repartition(str(self._checkpoint), partitions)
            self._on_event("repartitioned", {"partitions": partitions, "seconds": time.monotonic() - begun})
        with self._lock:
            self._workers, self._pending, self._restarted = partitions, None, id_
        return self._start()

    def _end_restart(self, message: str) -> None:
        """Ends a restart that found no record to run an epoch for: the query is idle without one."""
        if self._restarted is not None and found_nothing(message, committed=self._committed_since()):
            with self._lock:
                id_, self._restarted = self._restarted, None
            if id_ is not None:
                ended = {"id": id_, "epoch": self._last_epoch, "superseded": False}
                self._on_event("migration_end", ended)

    def _progress(self, epoch: int, begin_us: int, progress: Any) -> None:
        with self._lock:
            self._last_epoch, self._idle = epoch, 0
            again = str(progress.runId) == self._run
            if self._preloaded < self._source.preloaded:
                self._preloaded += progress.numInputRows
                if self._preloaded >= self._source.preloaded:
                    self._on_epoch(self._line(epoch, begin_us, progress, records=0), [])
                return
            id_ = self._restarted if again else None
            self._restarted = None if again else self._restarted
            line = self._line(epoch, begin_us, progress, records=progress.numInputRows, moved=id_ is not None)
            events = [] if id_ is None else [{"kind": "migration_end", "id": id_, "epoch": epoch, "superseded": False}]
            self._on_epoch(line, events)

    def _line(self, epoch: int, begin_us: int, progress: Any, *, records: int, moved: bool = False) -> dict[str, Any]:
        ms = dict(progress.durationMs)
        total = float(ms["triggerExecution"])
        moved = moved and self._native.repartitions
        return {
            "epoch": epoch,
            "begin_us": begin_us,
            "end_us": begin_us + round(total * 1e3),
            "workers": self._workers,
            "records": records,
            "misplaced": 0,
            "migrating": moved,
            "moved_bins": self._bins if moved else 0,
            "moved_bytes": state_bytes(progress) if moved else 0,
            "done_us": begin_us + round((total - float(ms.get("commitOffsets", 0))) * 1e3),
            "ms": {"total": total, "job": float(ms["addBatch"]), "between": total - float(ms["addBatch"])},
        }


def _count(records: DataFrame, operator: str) -> DataFrame:
    results = records.groupBy("key").count() if operator == "count" else count_by_processor(records)
    return results.select(F.col("key").cast("string"), F.col("count").cast("string").alias("value"))


def _raise_if_ended(query: StreamingQuery) -> None:
    if not query.isActive:
        raise StateError(str(query.exception() or "it ended by itself"))


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:500]
