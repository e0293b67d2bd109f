"""A source without records that begins epochs: one every second, and one behind the other while a migration goes on.

Structured Streaming starts no epoch on idle input, and a migration would stand still. The class for the JVM is
`Heartbeat.java`. Spark's own `rate` source beats every second only: an idle query moved its bins in steps of a second.
What the driver knows of an epoch is in no row of the stream: Spark reports it as metrics of this source, for listeners
and in the query's progress.
"""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryProgress

from impls.driver.driver import Driver
from impls.spark.compiled import new_object

METRICS = (
    "records", "results", "queued", "misplaced", "migrations", "moved_bins", "moved_bytes", "planned_bins",
    "planned_bytes", "rebuilt", "state_bytes", "workers",
)  # fmt: skip
_NAME = "rescale"  # of the source in a query's progress
_SOURCE = Path(__file__).with_name("Heartbeat.java")


def metrics_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """Returns the metrics of a query in micro-batches, see `METRICS`; {} for another query, or before the first epoch.

    >>> def onQueryProgress(self, event):  # of a StreamingQueryListener
    ...     print(metrics_of(event.progress)["moved_bytes"])
    """
    told = [source.metrics for source in progress.sources if source.description == _NAME]
    return {name: int(value) for metrics in told for name, value in metrics.items()}


class Heartbeat:
    """The heartbeat of one query."""

    def __init__(self, spark: SparkSession):
        self._spark, self._name, self._hurries = spark, uuid.uuid4().hex, False
        self._source = new_object(spark, _SOURCE)

    def added_to(self, df: DataFrame) -> DataFrame:
        """Returns the records of a DataFrame with the heartbeat beside them; Spark's plan has no partition for it."""
        beats = DataFrame(self._source.load(self._spark._jsparkSession, self._name), self._spark).where(F.lit(False))
        return df.unionByName(beats.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in df.schema.fields]))

    def hurry(self, on: bool = True) -> None:
        """Has epochs follow each other at once, or again every second."""
        if on != self._hurries:
            self._hurries = on
            self._source.hurry(self._name, on)

    def tell(self, metrics: Mapping[str, Any]) -> None:
        """Gives Spark the metrics of the epoch that it runs."""
        self._source.tell(self._name, ",".join(f"{name}={metrics.get(name) or 0}" for name in METRICS))


def with_heartbeat(df: DataFrame, driver: Driver) -> tuple[DataFrame, Callable[[], None]]:
    """Returns the records with a heartbeat that a driver hurries, and what is called behind each epoch."""
    heartbeat = Heartbeat(df.sparkSession)
    driver.on_command = heartbeat.hurry

    def tell() -> None:
        heartbeat.tell(driver.metrics.counts())
        heartbeat.hurry(driver.controller.busy)

    return heartbeat.added_to(df), tell
