"""Spark's loggers that print stack traces where a query ends, or is ended, on purpose."""

from collections.abc import Iterable

from pyspark.sql import SparkSession

__all__ = ["silence"]


def silence(spark: SparkSession, loggers: Iterable[str]) -> None:
    """Lets loggers be silent; they are named by what follows `org.apache.spark.`."""
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger in loggers:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{logger}", log4j.Level.OFF)
