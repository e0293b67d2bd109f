"""Starts Spark's own count on a run's topics, its state made beforehand by one record per key."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from generators.stream import NUMBER_BYTES
from harness.experiment.description import Run
from harness.lab.topics import create_topics
from harness.run.pipeline import read_raw, read_records, spark_checkpoint
from impls import catalog
from impls.mechanisms.native_spark.nexmark import answers
from impls.mechanisms.native_spark.query import NativeQuery, RecordSource
from impls.mechanisms.native_spark.real_time import NativeRealTimeQuery
from impls.worker.results import Output

PRELOAD_PARTITIONS = 1  # in real time, where each has a task of its own all the time
_PRELOAD = "-preload"


def start_native(
    spark: SparkSession,
    run: Run,
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    *,
    on_epoch: Callable[[dict[str, Any], list[dict[str, Any]]], None],
    on_event: Callable[[str, dict[str, Any]], None],
) -> NativeQuery:
    """Fills the topic that makes the state, and starts the query on it and on the input topic.

    A NEXMark query has no such topic: what comes before its load is in the input.
    """
    experiment = run.experiment
    rest: dict[str, Any] = {
        "output": Output(bootstrap, topics[1], experiment.result_partitions),
        "checkpoint": spark_checkpoint(folder),
        "native": catalog.baseline(run.mechanism, **run.options()),
        "workers": experiment.workers,
        "bins": experiment.bins,
        "on_epoch": on_epoch,
        "on_event": on_event,
    }
    limit = experiment.max_offsets_per_trigger
    if experiment.workload == "nexmark":
        source = RecordSource(partial(read_raw, spark, bootstrap, topics[0], limit), 0)
        return NativeQuery(spark, source, answers=partial(answers, query=experiment.query), **rest)
    preload = topics[0] + _PRELOAD
    create_topics(bootstrap, {preload: PRELOAD_PARTITIONS if run.real_time else experiment.workers})
    _fill(spark, bootstrap, preload, experiment.keys)
    source = RecordSource(partial(read_records, spark, bootstrap, f"{topics[0]},{preload}", limit), experiment.keys)
    if run.real_time:
        return NativeRealTimeQuery(spark, source, topic=topics[0], batch=experiment.batch, **rest)
    return NativeQuery(spark, source, **rest)


def _fill(spark: SparkSession, bootstrap: str, topic: str, keys: int) -> None:
    """Sends one record per key, of time 0, in key-count's form."""
    key = F.lpad(F.col("id").cast("string"), NUMBER_BYTES, "0")
    value = F.concat(key, F.lit("0" * NUMBER_BYTES)).alias("value")
    writer = spark.range(keys).select(value).write.format("kafka")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
