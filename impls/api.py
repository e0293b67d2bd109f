"""`stream`: a keyed operator on a Structured Streaming source, with a handle to rescale it while it runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls import catalog
from impls.closing import ended_on_error
from impls.controltopic.listener import ControlListener
from impls.controltopic.topic import ControlTopic
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord
from impls.driver.handle import RunQuery, StreamHandle
from impls.driver.lookups import state_reads
from impls.driver.pipeline import PipelineChanges
from impls.driver.preparing import NOTHING, Preparation
from impls.driver.refusal import undone_when_refused
from impls.durability.files import Files, check_level
from impls.durability.schedule import REPLAY_EPOCHS
from impls.durability.whole import made_folder
from impls.errors import UsageError
from impls.operators.base import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.arrays import check_bins
from impls.protocol.controller import Controller
from impls.protocol.mechanism import Mechanism
from impls.protocol.order import Executor
from impls.protocol.plan import DROP_ENTRIES
from impls.realtime.link import Switchboard
from impls.spark.columnnames import column_named
from impls.spark.columns import prepared, readable, value_of
from impls.spark.compiled import with_heartbeat
from impls.spark.executor import executor_for, runner
from impls.spark.identity import Identified
from impls.spark.input import QueryInput
from impls.spark.readiness import warm_workers
from impls.spark.realtime.batch import BATCH
from impls.spark.realtime.runner import RealTimeQuery
from impls.spark.realtime.start import REAL_TIME_DROPS, check_real_time, run_real_time
from impls.spark.session import check_session, local_location
from impls.spark.shipping import equip, pickled
from impls.spark.spec import hosts_of, spec_of
from impls.worker.output import Output
from impls.worker.query import QuerySpec
from impls.worker.refused import ON_ERROR
from impls.worker.sinks import ForeachBatch, Nowhere, Sink

__all__ = ["ControlTopic", "ForeachBatch", "Output", "RealTime", "stream"]

_MODES = ("micro-batch", "real-time")


@dataclass(frozen=True)
class RealTime:
    """What a query in real-time mode has to know.

    Attributes:
        slots: most workers while the query runs, the first ones at least; a rescale to more starts the query again.
        batch: duration of a batch of Spark, at whose end Spark notes its offsets.
    """

    slots: int = 0
    batch: str = BATCH


_DEFAULT = RealTime()

_AWAY_S = 15.0  # for which each attempt of a worker waits for a log_dir that its host has lost


def stream(
    df: DataFrame,
    *,
    key: str,
    operator: Operator,
    results: Output | ForeachBatch | None,
    state_dir: str | Path,
    checkpoint: str | Path,
    workers: int,
    bins: int = 256,
    mechanism: str = "megaphone-batched",
    options: Mapping[str, Any] | None = None,
    policy: str = "minimal_move",
    time: str | None = None,
    columns: Sequence[str] = (),
    trigger: str = "0 seconds",
    mode: str = "micro-batch",
    real_time: RealTime = _DEFAULT,
    on_error: str = "fail",
    durability: str = "process",
    log_dir: str | None = None,
    py_files: Sequence[str | Path] = (),
    replay_epochs: int = REPLAY_EPOCHS,
    tls: str = "none",
    control: ControlTopic | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
    _prepare: Preparation = NOTHING,
) -> StreamHandle:
    """Starts a stateful query and returns its handle; raises UsageError for an argument or a checkpoint of no use.

    Args:
        df: a streaming DataFrame of Kafka topics, or files (`impls.spark.columns`), or with `partition` and `offset`.
        key: column of the key, integer, string or binary; its hash names its bin.
        operator: the keyed operator, see `impls.operators`.
        results: a Kafka topic (`Output`) or a function of yours (`ForeachBatch`); None drops what the operator returns.
        state_dir: folder for the workers' state on each host that runs tasks; on a cluster in STATE_DIR/HOST.
        checkpoint: folder for offsets, plans and commands; the same folder again continues the query.
        workers: number of workers at the query's first start; later starts continue with what the last one had.
        bins: units of routing and movement, a power of two up to 16,384; fixed for the life of a checkpoint.
        mechanism: how a migration proceeds, see `impls.catalog.names()`.
        options: the mechanism's options.
        policy: how a rescale places bins, see `impls.placement`; options as in load_aware:imbalance=0.1.
        time: column of each record's scheduled time in µs since the Unix epoch, for latencies; None measures none.
        columns: further columns of the input, for versions of the pipeline that are to come (`StreamHandle.replace`).
        trigger: Structured Streaming's processing-time interval, of micro-batches.
        mode: "micro-batch", or "real-time": Spark's real-time mode, on one host, with state moved in the same way.
        real_time: what real-time mode has to know besides.
        on_error: what becomes of records that cannot be applied: "fail" or "skip", see `impls.worker.refused`.
        durability: what the state survives: "none", "process" or "host", see ARCHITECTURE.md, "Durability".
        log_dir: folder or URI (pyarrow's, s3://...) of changelog and snapshots; by default the checkpoint's.
        py_files: your own modules that the operator needs (.py, .zip) and folders of packages, sent to the executors.
        replay_epochs: most epochs of changelog that a recovery replays; of a larger state, an epoch for each mebibyte.
        tls: of bins between hosts: "none", "auto", or a file of certificate and key, see `impls.transfer.settings`.
        control: a Kafka topic with commands for this query, see `impls.controltopic`.
        on_epoch: called with every finished epoch.
        on_event: called with (kind, fields) when a command is taken and when the query starts or stops.
    """
    how, sink, key = catalog.make(mechanism, **(options or {})), _sink(results, mode), column_named(df, key)
    read, hosts = _read(df, sink, how, checkpoint, mode), hosts_of(df, how, sink, log_dir, tls)
    start = real_time if _is_real_time(mode, read.source, how, str(checkpoint), log_dir) else trigger
    settings = {"key": key, **_input(read, mode), **_checked((bins, workers), how, operator, durability, replay_epochs)}
    made = partial(spec_of, read, how, operator, sink, hosts, repeats=start is real_time, on_error=_on_error(on_error))
    frame = _ready(prepared(read.source, key, operator, bins, time, further=columns), operator, sink, py_files, start)
    with undone_when_refused(Checkpoint(checkpoint, settings, operator=operator, fsync=durability == "host")) as opened:
        files = Files(log_dir or str(opened.own), durability == "host", _AWAY_S) if settings["changelog"] else None
        spec = made(opened=opened, bins=bins, state_dir=made_folder(state_dir), files=files)
        driving = partial(Driver, files=files, replay_epochs=replay_epochs, on_epoch=on_epoch, prepare=_prepare)
        making = partial(driving, _controller(spec, how, initial(bins, workers, policy), _prepare), opened)
        return _handle(frame, spec, opened, making, start, read=read, control=control, policy=policy, on_event=on_event)


def _read(df: DataFrame, sink: Sink, how: Mechanism, checkpoint: str | Path, mode: str) -> QueryInput:
    """Returns the query's input; raises UsageError where its repeats cannot be told."""
    read = QueryInput.of(df, sink, checkpoint, numbered=mode == "real-time")
    if read.source.linked and how.shared is not None:
        raise UsageError("A store that all workers share does not tell repeats of another query's results apart.")
    return read


def _input(read: QueryInput, mode: str) -> dict[str, Any]:
    """Returns what the offsets that bins have applied depend on."""
    return {"mode": mode, "linked": read.source.linked or None}


def _on_error(given: str) -> str:
    if given not in ON_ERROR:
        raise UsageError(f"on_error={given!r} is unknown: use {' or '.join(ON_ERROR)}.")
    return given


def _handle(
    frame: DataFrame,
    spec: QuerySpec,
    opened: Checkpoint,
    making: "_Making",
    how_to: RealTime | str,
    *,
    read: QueryInput,
    control: ControlTopic | None,
    **more: Any,
) -> StreamHandle:
    """Returns the handle of a query in real time, or in micro-batches at a trigger's interval."""
    read.keep(opened.own, fsync=opened.fsync)
    if isinstance(how_to, RealTime):
        run, driver, end = _in_real_time(how_to, frame, spec, opened, making, read)
    else:
        run, driver, end = _in_micro_batches(how_to, frame, spec, opened, making)
    with ended_on_error(end):  # as long as no handle ends it
        if driver.controller.clock is not None:
            driver.controller.clock.forget(read.topics.is_gone)
        changes = PipelineChanges(driver, spec.operator, pickled, readable(frame), spec.shared is not None)
        hear, real_time = None, isinstance(how_to, RealTime)
        if control is not None:
            hear = ControlListener(control, opened, driver, read.begin(real_time=real_time), read.broker).start
        driver.prepare.files(driver.next_planned > 0)
        source = partial(read.arrivals, real_time=real_time)
        if (follow := driver.prepare.follow) is not None and driver.controller.clock is not None:
            follow(driver, read.followed(real_time=real_time), read.told_apart.input_partitions)
        run = read.noting(run, opened.own, real_time=real_time, fsync=opened.fsync)
        reads = partial(state_reads, driver, opened, spec, partial(value_of, frame.sparkSession))
        return StreamHandle(run, changes, opened, source=source, reads=reads, end=end, listen=hear, **more)


_Making = Callable[[Executor], Driver]
_Started = tuple[RunQuery, Driver, Callable[[], None]]


def _controller(spec: QuerySpec, how: Mechanism, assignment: NDArray[np.int32], prepare: Preparation) -> Controller:
    drops = REAL_TIME_DROPS if spec.repeats else DROP_ENTRIES
    clock = clock_of(spec.operator, spec.bins, linked=prepare.follow is not None)
    return Controller(assignment, how, clock, drops)


def _in_micro_batches(trigger: str, frame: DataFrame, spec: QuerySpec, opened: Checkpoint, making: _Making) -> _Started:
    """Returns what `run_real_time` does; nothing is to be freed at the end."""
    driver = making(executor_for(frame.sparkSession.sparkContext.master, spec))
    ticking, tell = with_heartbeat(frame, driver)
    return runner(_writer(ticking, opened, trigger), tell), driver, lambda: None


def _in_real_time(  # noqa: PLR0917 - as `_in_micro_batches`, and the input
    how: RealTime, frame: DataFrame, spec: QuerySpec, opened: Checkpoint, making: _Making, read: QueryInput
) -> _Started:
    """Returns what `run_real_time` does."""

    def query(switchboard: Switchboard) -> RealTimeQuery:
        return RealTimeQuery(frame, spec, switchboard, opened.name, opened.spark, how.batch, read.told_apart)

    return run_real_time(frame.sparkSession, query, making, slots=how.slots, partitions=read.partitions())


def _is_real_time(mode: str, source: Identified, how: Mechanism, checkpoint: str, log_dir: str | None) -> bool:
    """Returns whether the mode is real time; raises UsageError for an unknown one, or what cannot be had in it."""
    if mode not in _MODES:
        raise UsageError(f"The mode {mode!r} is unknown: use {' or '.join(_MODES)}.")
    if mode == "micro-batch":
        return False
    check_real_time(source, checkpoint=checkpoint, log_dir=log_dir)
    if how.shared is not None:
        raise UsageError('A store that all workers share has one commit in an epoch: use mode="micro-batch" with it.')
    return True


def _sink(results: Output | ForeachBatch | None, mode: str) -> Sink:
    """Returns what workers give their results to; raises UsageError for a function in real time."""
    if isinstance(results, ForeachBatch) and mode == "real-time":
        raise UsageError(
            "In real-time mode results leave in turns, not in epochs that a ForeachBatch could be given: send them to "
            'Kafka, or use mode="micro-batch".'
        )
    return Nowhere() if results is None else results


def _ready(
    frame: DataFrame, operator: Operator, sink: Sink, py_files: Sequence[str | Path], how_to: RealTime | str
) -> DataFrame:
    """Checks a frame's session, sends the executors what they need, connects the workers that there can be now."""
    spark = frame.sparkSession
    check_session(spark)
    if isinstance(sink, Output):
        sink.check()
    equip(spark, operator, py_files)
    if not isinstance(how_to, RealTime):  # whose tasks live as long as their processes, and connect these themselves
        warm_workers(spark, sink)
    return frame


def _writer(frame: DataFrame, opened: Checkpoint, trigger: str) -> DataStreamWriter:
    writer = frame.writeStream.queryName(opened.name).trigger(processingTime=trigger)
    return writer.option("checkpointLocation", local_location(opened.spark))


def _checked(
    size: tuple[int, int], how: Mechanism, operator: Operator, durability: str, replay_epochs: int
) -> dict[str, Any]:
    """Returns where state is, and whether a changelog is kept: not where a shared store is itself what is durable."""
    check_bins(*size)
    check_level(durability, replicates=how.replicates)
    if replay_epochs < 1:
        raise UsageError(f"replay_epochs must be at least 1, not {replay_epochs}.")
    if how.shared is not None:
        if operator.event_time is not None or operator.reads_ranges:
            raise UsageError("A store that all workers share has no timers, lists and maps: choose another mechanism.")
        how.shared.check()
    own = how.shared is None
    return {"bins": size[0], "changelog": own and durability != "none", "state": "own" if own else "shared"}
