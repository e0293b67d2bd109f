"""The query under test, on Kafka: through `impls.stream`, or as Spark's own count."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from generators.nexmark.profile import make_profile
from generators.stream import NUMBER_BYTES
from harness.experiment.description import Experiment, Run
from harness.experiment.schedules import FIRST
from harness.lab.bringup import Services, bring_up, open_session
from harness.lab.topics import create_topics
from harness.run.chained import ChainedQuery, second_of, start_chain
from harness.run.recorder import Recorder
from impls import catalog
from impls.addresses import below
from impls.api import RealTime, stream
from impls.driver.epochs import EpochRecord
from impls.driver.handle import StreamHandle
from impls.driver.observed import OnEvent, OnLine
from impls.mechanisms.native_spark.nexmark import answers
from impls.mechanisms.native_spark.query import NativeQuery, RecordSource
from impls.mechanisms.native_spark.real_time import NativeRealTimeQuery
from impls.operators import DenseCount, HashCount, Operator
from impls.operators.nexmark import make as make_query
from impls.spark.columns import KEY, TIME, project
from impls.worker.output import Output


def bring_up_alone(
    experiment: Experiment, folder: Path, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[Services]:
    """Brings up what an experiment needs that has no runs: the topics are `in` and `out`; see `bring_up`."""
    session = partial(open_session, experiment.name, experiment.workers, settings=settings)
    topics = {"in": experiment.input_partitions, "out": experiment.result_partitions}
    return bring_up(folder, session=session, topics=topics)


def _number(value: Column, place: int) -> Column:
    return F.substring(value, 1 + place * NUMBER_BYTES, NUMBER_BYTES).cast("string").cast("long")


def read_records(
    spark: SparkSession, bootstrap: str, topic: str, max_offsets_per_trigger: int | None = None
) -> DataFrame:
    """Returns the stream of key-count records: key, scheduled_us, partition, offset."""
    value = F.col("value")
    return _read_raw(spark, bootstrap, topic, max_offsets_per_trigger).select(
        _number(value, 0).alias("key"), _number(value, 1).alias("scheduled_us"), "partition", "offset"
    )


def _read_raw(spark: SparkSession, bootstrap: str, topic: str, max_offsets_per_trigger: int | None) -> DataFrame:
    """Returns the stream of a topic as Kafka gives it, from its beginning."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("kafka.fetch.max.wait.ms", "20")  # else the last records of a load wait 500 ms for more
    )
    if max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return reader.load()


def disorder_ms(experiment: Experiment) -> int:
    """Returns how far NEXMark events of one partition may be out of order, in ms.

    A group's events are apart by the group's size at most, at the lowest rate there is.
    """
    profile = make_profile(experiment.profile, experiment.rate, out_of_order=experiment.out_of_order)
    planned = experiment.schedule()
    times = planned.times_us(0, planned.records_until(int(experiment.longest_s * 1e6) - 1))
    spread = times[profile.group - 1 :] - times[: len(times) - profile.group + 1]
    group = int(spread.max(initial=0)) // 1000 + 1 if profile.group > 1 else 0
    return group + (profile.delay_ms if profile.delayed else 0)


def operator_for(experiment: Experiment) -> Operator:
    """Returns the operator of the experiment's workload, its state created for all keys."""
    if experiment.workload == "nexmark":
        return make_query(experiment.query, partitions=experiment.input_partitions, disorder=disorder_ms(experiment))
    if experiment.workload == "dense":
        return DenseCount(experiment.keys, cost_us=experiment.cost_us, cost=experiment.cost)
    return HashCount(
        experiment.keys, value_bytes=experiment.value_bytes, cost_us=experiment.cost_us, cost=experiment.cost
    )


def _read_input(
    spark: SparkSession, bootstrap: str, topic: str, experiment: Experiment, operator: Operator
) -> DataFrame:
    """Returns the stream of what the operator reads."""
    if experiment.workload == "nexmark":
        return project(_read_raw(spark, bootstrap, topic, experiment.max_offsets_per_trigger), operator)
    return read_records(spark, bootstrap, topic, experiment.max_offsets_per_trigger)


def start_query(
    spark: SparkSession,
    run: Run,
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    *,
    on_epoch: Callable[[EpochRecord], None],
    on_event: OnEvent,
    state: Path | None = None,
    redis: str = "",
    source: tuple[DataFrame, Operator, Sequence[str]] | None = None,
) -> StreamHandle:
    """Starts the run's query on its checkpoint, or continues it.

    `state` is the folder of the workers' state where it is not `state_dir`; `redis` the server of mechanisms that need
    one; `source` has records, operator and further columns of a query that is not the experiment's workload.
    """
    frame, operator, columns = source or (*_workload(spark, run, bootstrap, topics[0]), ())
    return stream(
        frame,
        key=KEY,
        time=TIME,
        columns=columns,
        operator=operator,
        results=Output(bootstrap, topics[1], run.experiment.result_partitions),
        workers=run.experiment.workers,
        **_settings(run, folder, state, redis),
        on_epoch=on_epoch,
        on_event=on_event,
    )


def start_two_stages(
    spark: SparkSession,
    run: Run,
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    *,
    second: Recorder,
    state: Path | None = None,
    redis: str = "",
    **on: Any,
) -> ChainedQuery:
    """As `start_query`, of a query of two stages; `second` takes the epochs and events of the second one."""
    frame, operator = _workload(spark, run, bootstrap, topics[0])
    results = Output(bootstrap, topics[1], run.experiment.result_partitions)
    settings = _settings(run, folder, state, redis)
    return start_chain(frame, operator, run, results=results, second=second, on=on, settings=settings)


def _workload(spark: SparkSession, run: Run, bootstrap: str, topic: str) -> tuple[DataFrame, Operator]:
    operator = operator_for(run.experiment)
    return _read_input(spark, bootstrap, topic, run.experiment, operator), operator


def _settings(run: Run, folder: Path, state: Path | None, redis: str) -> dict[str, Any]:
    """Returns what `impls.stream` is told of an experiment, and each stage of a chain."""
    experiment = run.experiment
    return {
        "state_dir": state or state_dir(run, folder),
        "checkpoint": folder / "checkpoint",
        "bins": experiment.bins,
        "mechanism": run.mechanism,
        "options": run.options() | ({"redis": redis} if redis else {}),
        "policy": experiment.policy,
        "durability": experiment.durability,
        "log_dir": log_dir(run, folder),
        "tls": experiment.tls,
        **mode_of(run),
    }


def mode_of(run: Run) -> dict[str, Any]:
    """Returns what `impls.stream` is told of the mode."""
    if not run.real_time:
        return {"trigger": run.experiment.trigger}
    return {"mode": run.mode, "real_time": RealTime(run.slots, run.experiment.batch)}


def spark_checkpoint(folder: Path, run: Run | None = None) -> Path:
    """Returns the folder of Spark's own checkpoint, with offset and commit log, of what reads the input of a run.

    Without a run it is that of a query of one stage.
    """
    stage = FIRST if run is not None and second_of(run) is not None else ""
    return folder / "checkpoint" / stage / "spark"


def topics_of(run: Run, folder: Path) -> tuple[str, str]:
    """Returns the names of the input and results topics; on a shared broker they carry the run's identity."""
    if run.experiment.bootstrap is None:
        return "in", "out"
    stem = f"rescale-{folder.parent.parent.name}-{folder.name}"
    return f"{stem}-in", f"{stem}-out"


def state_dir(run: Run, folder: Path) -> Path:
    """Returns the folder of the workers' state: the run's own, or one below --state-dir named after the run."""
    if run.experiment.state_dir is None:
        return folder / "state"
    return Path(run.experiment.state_dir) / _named(folder)


def log_dir(run: Run, folder: Path) -> str | None:
    """Returns the folder or URI of the run's changelog below --log-dir; None for its checkpoint's."""
    if run.experiment.log_dir is None:
        return None
    return below(run.experiment.log_dir, _named(folder))


def _named(folder: Path) -> str:
    return f"{folder.parent.parent.name}-{folder.name}"


PRELOAD_PARTITIONS = 1  # in real time, where each has a task of its own all the time
_PRELOAD = "-preload"


def start_native(
    spark: SparkSession,
    run: Run,
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    *,
    on_epoch: OnLine,
    on_event: OnEvent,
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
        source = RecordSource(partial(_read_raw, spark, bootstrap, topics[0], limit), 0)
        twin = partial(answers, query=experiment.query, disorder_ms=disorder_ms(experiment))
        return NativeQuery(spark, source, answers=twin, trigger=experiment.trigger, **rest)
    preload = topics[0] + _PRELOAD
    create_topics(bootstrap, {preload: PRELOAD_PARTITIONS if run.real_time else experiment.workers})
    _send_keys(spark, bootstrap, preload, experiment.keys)
    source = RecordSource(partial(read_records, spark, bootstrap, f"{topics[0]},{preload}", limit), experiment.keys)
    if run.real_time:
        return NativeRealTimeQuery(spark, source, topic=topics[0], batch=experiment.batch, **rest)
    return NativeQuery(spark, source, trigger=experiment.trigger, **rest)


def _send_keys(spark: SparkSession, bootstrap: str, topic: str, records: int, key: Column | None = None) -> None:
    """Sends records of time 0 in key-count's form; the key of each is its number, or what `key` makes of that.

    Args:
        spark: whose tasks send them.
        bootstrap: the broker's address.
        topic: that gets them.
        records: their number.
        key: an expression over the column `id`, 0 to records - 1.
    """
    digits = F.lpad((F.col("id") if key is None else key).cast("string"), NUMBER_BYTES, "0")
    value = F.concat(digits, F.lit("0" * NUMBER_BYTES)).alias("value")
    writer = spark.range(records).select(value).write.format("kafka")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
