"""The query under test: key-count records from Kafka through `impls.stream`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from harness.experiment import Experiment, Run
from impls.api import stream
from impls.operators import DenseCount, HashCount, Operator
from impls.runtime.driver import EpochRecord
from impls.runtime.handle import StreamHandle
from impls.runtime.outbox import Output

__all__ = ["operator_for", "read_records", "start_query"]


def _little_endian(column: Column, at: int) -> Column:
    return F.conv(F.hex(F.reverse(F.substring(column, at, 8))), 16, -10).cast("long")


def read_records(
    spark: SparkSession, bootstrap: str, topic: str, max_offsets_per_trigger: int | None = None
) -> DataFrame:
    """Returns the stream of key-count records: key, scheduled_us, partition, offset."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("kafka.fetch.max.wait.ms", "20")  # else the last records of a load wait 500 ms for company
    )
    if max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    value = F.col("value")
    return reader.load().select(
        _little_endian(value, 1).alias("key"), _little_endian(value, 9).alias("scheduled_us"), "partition", "offset"
    )


def operator_for(experiment: Experiment) -> Operator:
    """Returns the operator of the experiment's workload, its state created for all keys."""
    if experiment.workload == "dense":
        return DenseCount(experiment.keys, cost_us=experiment.cost_us, cost=experiment.cost)
    return HashCount(
        experiment.keys, value_bytes=experiment.value_bytes, cost_us=experiment.cost_us, cost=experiment.cost
    )


def start_query(
    spark: SparkSession,
    run: Run,
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    *,
    on_epoch: Callable[[EpochRecord], None],
    on_event: Callable[[str, dict[str, Any]], None],
    redis: str | None = None,
) -> StreamHandle:
    """Starts the run's query on its checkpoint, or continues it; `redis` is the server of mechanisms that need one."""
    experiment = run.experiment
    return stream(
        read_records(spark, bootstrap, topics[0], experiment.max_offsets_per_trigger),
        key="key",
        time="scheduled_us",
        operator=operator_for(experiment),
        results=Output(bootstrap, topics[1], experiment.result_partitions),
        state_dir=state_dir(run, folder),
        checkpoint=folder / "checkpoint",
        workers=experiment.workers,
        bins=experiment.bins,
        mechanism=run.mechanism,
        options=run.options() | ({"redis": redis} if redis else {}),
        policy=experiment.policy,
        durability=experiment.durability,
        on_epoch=on_epoch,
        on_event=on_event,
    )


def state_dir(run: Run, folder: Path) -> Path:
    """Returns the folder of the workers' state: the run's own, or one below --state-dir named after the run."""
    if run.experiment.state_dir is None:
        return folder / "state"
    return Path(run.experiment.state_dir) / f"{folder.parent.parent.name}-{folder.name}"
