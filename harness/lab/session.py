"""Spark sessions of a run: opened with the Kafka connector, stopped, and ended with their JVM."""

from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from harness.setup.jars import ensure_jars
from harness.setup.java import use_java
from impls.spark.session import spark_session

__all__ = ["KEEP_LOGS", "end_session", "open_session", "stop_session"]

KEEP_LOGS = {"spark.sql.streaming.minBatchesToRetain": "1000000"}  # the oracle reads the whole offset log
_JVM_DEADLINE_S = 30.0


def open_session(
    name: str, threads: int, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts a session with the Kafka connector; see `spark_session`. Raises UsageError where Java is missing."""
    use_java()
    return spark_session(ensure_jars().spark, threads=threads, master=master, name=name, settings=settings)


def stop_session(spark: SparkSession) -> None:
    """Stops a session unless that has been done: its JVM may be gone, and then a second stop fails."""
    if spark.sparkContext._jsc is not None:
        spark.stop()


def end_session(spark: SparkSession) -> None:
    """Stops a session and its JVM, so that the next session starts a new one."""
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM ends when its standard input does
        process.wait(_JVM_DEADLINE_S)
    SparkContext._gateway = SparkContext._jvm = None
