"""Spark sessions of a run: opened with the Kafka connector, and stopped."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from harness.setup.jars import ensure_jars
from harness.setup.java import use_java
from impls.spark.session import spark_session

__all__ = ["KEEP_LOGS", "open_session", "stop_session"]

KEEP_LOGS = {"spark.sql.streaming.minBatchesToRetain": "1000000"}  # the oracle reads the whole offset log


def open_session(
    name: str, threads: int, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts a session with the Kafka connector, see `spark_session`; raises UsageError where Java is missing."""
    use_java()
    return spark_session(ensure_jars().spark, threads=threads, master=master, name=name, settings=settings)


def stop_session(spark: SparkSession) -> None:
    """Stops a session unless that has been done: its JVM may be gone, and then a second stop fails."""
    if spark.sparkContext._jsc is not None:
        spark.stop()
