"""What real-time mode cannot do is refused before anything starts, with what to use instead."""

import re

import pyspark
from pyspark.sql import DataFrame, SparkSession

from impls.errors import UsageError
from impls.spark.master import is_local
from impls.spark.realtime.settings import real_time_settings
from impls.spark.source import streaming_sources

__all__ = ["check_real_time"]

_OLDEST = (4, 3)
_SOURCE = "kafka"
_INSTEAD = 'use mode="micro-batch"'
_OF_BATCHES = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")  # Spark refuses them when its query has begun


def check_real_time(df: DataFrame, *, checkpoint: str, log_dir: str | None) -> None:
    """Raises UsageError for a query that real-time mode cannot run.

    Args:
        df: the source.
        checkpoint: the checkpoint's folder.
        log_dir: where the changelog goes, if elsewhere.
    """
    if tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2])) < _OLDEST:
        raise UsageError(f"Real-time mode needs pyspark 4.3, this is {pyspark.__version__}: {_INSTEAD}.")
    spark = df.sparkSession
    if not is_local(master := spark.sparkContext.master):
        raise UsageError(f"Real-time mode runs on one machine, not on {master}: {_INSTEAD} on a cluster.")
    for place in filter(None, (checkpoint, log_dir)):
        if "://" in place and not place.startswith("file://"):
            raise UsageError(f"Real-time mode keeps its changelog on this machine, not in {place}: {_INSTEAD} there.")
    _check_sources(df)
    _check_settings(spark)


def _check_sources(df: DataFrame) -> None:
    for leaf in streaming_sources(df):
        if (name := str(leaf.sourceName())) != _SOURCE:
            raise UsageError(f"Real-time mode reads from Kafka, not from the source {name}: {_INSTEAD} for it.")
        for option in _OF_BATCHES:
            if leaf.extraOptions().get(option) is not None:
                raise UsageError(f"Real-time mode reads each record when it comes: leave the option {option} out.")


def _check_settings(spark: SparkSession) -> None:
    """Raises UsageError where a setting is missing: records would wait, or the tasks for each other."""
    own = spark.sparkContext.getConf()
    for name, value in real_time_settings().items():
        if own.get(name) != value:
            raise UsageError(
                f"Real-time mode needs {name}={value}: start the session with "
                "spark_session(..., settings=real_time_settings())."
            )
