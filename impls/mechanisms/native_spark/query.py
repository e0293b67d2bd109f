"""Spark's own stateful count as a running query that takes the same commands as `impls.driver.handle`."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.driver.observed import RunningQuery
from impls.errors import StateError, UsageError
from impls.mechanisms.native_spark.native import Native
from impls.mechanisms.native_spark.processor import count_by_processor
from impls.mechanisms.native_spark.ticks import EpochListener, found_nothing, idle_polls, newest_epoch, state_bytes
from impls.placement import initial
from impls.worker.results import Output

_POLL_S = 0.05
_IDLE_POLLS = 10  # a batch without data follows, where windows can be closed
_STOP_DEADLINE_S = 60.0
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


class NativeQuery(RunningQuery):
    """A stateful count of Spark's own; a supervisor thread executes commands by restarting it.

    Attributes:
        wants_restart: never; it is there for whoever expects a StreamHandle.

    With `answers` it is another query than the count: a function from records to the columns that go to Kafka.
    """

    wants_restart = False

    def __init__(
        self,
        spark: SparkSession,
        source: RecordSource,
        output: Output,
        checkpoint: Path,
        *,
        native: Native,
        workers: int,
        bins: int,
        on_epoch: Callable[[dict[str, Any], list[dict[str, Any]]], None],
        on_event: Callable[[str, dict[str, Any]], None],
        answers: Answers | None = None,
    ):
        super().__init__()
        self._answers = answers or partial(_count, operator=native.operator)
        self._mode = "append" if answers else "update"
        self._spark, self._source, self._output, self._checkpoint = spark, source, output, checkpoint
        self._native, self._bins = native, bins
        self._on_epoch, self._on_event = on_epoch, on_event
        self._partitions, self._usual = workers, workers
        self.goal: NDArray[np.int32] = initial(bins, workers)
        self._lock = threading.RLock()
        self._pending: tuple[str, int] | None = None  # a command that is not carried out yet: (id, partitions)
        self._restarted: str | None = None  # one whose first epoch is not done
        self._resumed = -1  # the last epoch that was committed before the last start
        self._last_epoch, self._preloaded = -1, 0
        self._run = ""  # Spark's id of the query since its last start
        self._stopping = False
        self._idle = 0  # polls in a row that found no epoch under way
        self._listener = EpochListener(self._progress)
        spark.streams.addListener(self._listener)
        self._supervisor = threading.Thread(target=self._supervise, name="native-supervisor", daemon=True)
        self._supervisor.start()

    def rebalance(self, goal: NDArray[np.int32], *, label: str = "rebalance") -> str:
        """Restarts the query for a goal and returns the command's id; its state is repartitioned if the mechanism does.

        Spark's state has no bins: a goal is reached with one partition per worker that it names. One that keeps their
        number, which Spark has no way to reach, takes one partition more, and the next such goal takes it back.
        """
        with self._lock:
            if self._ended.is_set() or self._stopping:
                raise UsageError("The query has ended: start it again before giving it a command.")
            if self._pending is not None or self._restarted is not None:
                raise UsageError("The query is restarting: wait until it runs again.")
            id_ = uuid.uuid4().hex
            self._pending = (id_, self._wanted(int(goal.max()) + 1))
            self.goal = np.asarray(goal, np.int32).copy()
        self._on_event("command", {"id": id_, "label": label})
        return id_

    def _wanted(self, workers: int) -> int:
        if not self._native.repartitions:
            return self._partitions
        wanted, self._usual = next_workers(workers, self._usual, self._partitions)
        return wanted

    def status(self) -> dict[str, Any]:
        """Returns epoch, partitions, whether a restart is under way, whether all input has had its effect (settled)."""
        with self._lock:
            migrating = self._pending is not None or self._restarted is not None
            return {
                "epoch": self._last_epoch,
                "workers": self._partitions,
                "queued": 0,
                "migrating": migrating,
                "running": not self._ended.is_set(),
                "settled": self._idle >= _IDLE_POLLS,
            }

    @property
    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rates and sizes of bins: Spark's state has none."""
        return np.zeros(self._bins), np.zeros(self._bins, np.int64)

    def stop(self) -> None:
        """Stops the query; raises what it failed with, if it did."""
        self._stopping = True
        if not self._ended.wait(_STOP_DEADLINE_S):
            raise StateError(f"Spark's own query did not stop in {_STOP_DEADLINE_S:.0f} s.")
        if self._failure is not None:
            raise self._failure

    def _start(self) -> StreamingQuery:
        with self._lock:  # so that no epoch is told of before it is known whose it is
            self._resumed = self._committed()
            self._on_event("query_start", {"partitions": self._partitions})
            query = self._writer().start()
            self._run = str(query.runId)
            return query

    def _finish_last_epoch(self) -> None:
        """Runs the epoch that a stop has cut off: state with one cannot be repartitioned exactly once."""
        if newest_epoch(self._checkpoint / "offsets") > self._committed():
            self._writer().trigger(availableNow=True).start().awaitTermination()

    def _committed(self) -> int:
        return newest_epoch(self._checkpoint / "commits")

    def _committed_since(self) -> bool:
        """Returns whether the last start has committed an epoch; asked at every poll, so no folder is listed."""
        return (self._checkpoint / "commits" / str(self._resumed + 1)).exists()

    def _writer(self) -> DataStreamWriter:
        self._spark.conf.set(_PARTITIONS, str(self._partitions))
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
        self._idle = idle_polls(self._idle, message)

    def _restart(self, query: StreamingQuery) -> StreamingQuery:
        with self._lock:
            assert self._pending is not None
            id_, partitions = self._pending
        query.stop()
        self._on_event("query_stop", {})
        self._on_event("migration_begin", {"id": id_, "epoch": self._last_epoch + 1, "label": ""})
        if partitions != self._partitions and (self._checkpoint / "state").is_dir():  # a projection has none
            begun = time.monotonic()
            self._finish_last_epoch()
            self._spark._streamingCheckpointManager.repartition(str(self._checkpoint), partitions)
            self._on_event("repartitioned", {"partitions": partitions, "seconds": time.monotonic() - begun})
        with self._lock:
            self._partitions, self._pending, self._restarted = partitions, None, id_
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
            self._last_epoch = epoch
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
            "workers": self._partitions,
            "records": records,
            "misplaced": 0,
            "migrating": moved,
            "moved_bins": self._bins if moved else 0,
            "moved_bytes": state_bytes(progress) if moved else 0,
            "done_us": begin_us + round((total - float(ms.get("commitOffsets", 0))) * 1e3),
            "ms": {"total": total, "job": float(ms["addBatch"]), "between": total - float(ms["addBatch"])},
        }


def next_workers(named: int, usual: int, now: int) -> tuple[int, int]:
    """Returns how many workers a goal asks for where there are no bins, and what then is the usual number.

    Args:
        named: workers that the goal names.
        usual: those that the last goal of another number named.
        now: those there are.

    >>> next_workers(4, 2, 2), next_workers(2, 2, 2), next_workers(2, 2, 3)
    ((4, 4), (3, 2), (2, 2))
    """
    return (named + 1 if named == usual == now else named), named


def _count(records: DataFrame, operator: str) -> DataFrame:
    results = records.groupBy("key").count() if operator == "count" else count_by_processor(records)
    return results.select(F.col("key").cast("string"), F.col("count").cast("string").alias("value"))


def _raise_if_ended(query: StreamingQuery) -> None:
    if not query.isActive:
        raise StateError(str(query.exception() or "it ended by itself"))


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:500]
