"""A source without records that begins epochs: one every second, and one behind the other while a migration goes on.

Structured Streaming starts no epoch on idle input, and a migration would stand still. The class for the JVM is
`Heartbeat.java`. Spark's own `rate` source beats every second only: an idle query moved its bins in steps of a second.
"""

import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from impls.driver.driver import Driver
from impls.spark.compiled import new_object
from impls.spark.progress import ProgressMetrics, observed

__all__ = ["Heartbeat", "with_heartbeat"]

_SOURCE = Path(__file__).with_name("Heartbeat.java")


class Heartbeat:
    """The heartbeat of one query."""

    def __init__(self, spark: SparkSession):
        self._spark, self._name, self._hurries = spark, uuid.uuid4().hex, False
        self._source = new_object(spark, _SOURCE)

    def added_to(self, df: DataFrame) -> DataFrame:
        """Returns the records of a DataFrame with the heartbeat beside them.

        Spark's plan has no partition for it, and observes it in place of what only the driver knows, see
        `impls.spark.progress`.
        """
        beats = DataFrame(self._source.load(self._spark._jsparkSession, self._name), self._spark)
        nothing = observed(beats.where(F.lit(False)))
        return df.unionByName(nothing.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in df.schema.fields]))

    def hurry(self, on: bool = True) -> None:
        """Has epochs follow each other at once, or again every second."""
        if on != self._hurries:
            self._hurries = on
            self._source.hurry(self._name, on)


def with_heartbeat(df: DataFrame, driver: Driver) -> tuple[DataFrame, Callable[[StreamingQuery], None]]:
    """Returns the records with a heartbeat that a driver hurries, and what is called behind each epoch."""
    figures, heartbeat = ProgressMetrics(df.sparkSession, driver.figures.counts), Heartbeat(df.sparkSession)
    driver.on_command = heartbeat.hurry

    def tell(query: StreamingQuery) -> None:
        figures.tell(query)
        heartbeat.hurry(driver.controller.busy)

    return heartbeat.added_to(df), tell
