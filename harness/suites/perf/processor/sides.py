"""The two queries of the comparison: one frame of records, one processor, results on Kafka as JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from harness.run.pipeline import read_records
from impls.mechanisms.native_spark.conf import own_state_store
from impls.processor.start import transform_with_state
from impls.worker.output import Output

OUTPUT = "key long, count long, scheduled_us long"


class Counter(StatefulProcessor):
    """Keeps a count per key, and sends it with the time of each record, so that every record's latency is known."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Takes the handle of the key's state."""
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Counts the rows of a key."""
        before = self._count.get()
        count = before[0] if before is not None else 0
        for row in rows:
            count += 1
            yield Row(key=key[0], count=count, scheduled_us=row.scheduled_us)
        self._count.update((count,))

    def close(self) -> None:
        """Does nothing."""


SIDES = ("Spark", "live")
_BINS = 256


@dataclass(frozen=True)
class SidePlace:
    """Where a side reads and writes, and how large it is.

    Attributes:
        topics: of the input: the first for backlogs, another for each steady load, as a generator wants one of its own.
        results: topic of the results.
        partitions: of the results' topic.
        folder: for checkpoint and state.
        workers: state partitions of Spark's own, workers of this runtime.
        epoch_records: most records of an epoch.
    """

    bootstrap: str
    topics: tuple[str, ...]
    results: str
    partitions: int
    folder: Path
    workers: int
    epoch_records: int

    def records(self, spark: SparkSession) -> DataFrame:
        """Returns the records of all topics."""
        return read_records(spark, self.bootstrap, ",".join(self.topics), self.epoch_records)


@contextmanager
def running(side: str, spark: SparkSession, place: SidePlace) -> Iterator[Callable[[], None]]:
    """Runs a side's query, from its start or from where it was stopped; what is yielded raises what it failed with."""
    with (_by_spark if side == "Spark" else _by_this_runtime)(spark, place) as check:
        yield check


@contextmanager
def _by_spark(spark: SparkSession, place: SidePlace) -> Iterator[Callable[[], None]]:
    with own_state_store(spark, place.workers):
        counted = place.records(spark).groupBy("key").transformWithState(Counter(), OUTPUT, "Update", "None")
        results = counted.select(F.col("key").cast("string"), F.to_json(F.struct("*")).alias("value"))
        writer = results.writeStream.format("kafka").outputMode("update").option("topic", place.results)
        writer = writer.option("kafka.bootstrap.servers", place.bootstrap)
        query = writer.option("checkpointLocation", str(place.folder / "spark")).start()

    def check() -> None:
        if (error := query.exception()) is not None:
            raise error

    try:
        yield check
        query.processAllAvailable()  # a batch that a stop interrupts would run, and send, again
    finally:
        query.stop()


@contextmanager
def _by_this_runtime(spark: SparkSession, place: SidePlace) -> Iterator[Callable[[], None]]:
    with transform_with_state(
        place.records(spark).groupBy("key"), Counter(), OUTPUT, "Update", "None",
        results=Output(place.bootstrap, place.results, place.partitions), state_dir=place.folder / "state",
        checkpoint=place.folder / "live", workers=place.workers, bins=_BINS,
    ) as handle:  # fmt: skip

        def check() -> None:
            handle.await_end(0)

        yield check
