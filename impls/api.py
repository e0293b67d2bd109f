"""`stream`: a keyed operator on a Structured Streaming source, with a handle to rescale it while it runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver, EpochRecord
from impls.driver.handle import StreamHandle
from impls.durability.files import Files, check_level
from impls.durability.schedule import REPLAY_EPOCHS
from impls.errors import UsageError
from impls.operators.base import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.bins import check_bins
from impls.protocol.controller import Controller
from impls.protocol.mechanism import Mechanism
from impls.spark.columns import prepared, with_heartbeat
from impls.spark.executor import runner
from impls.spark.master import is_local
from impls.spark.seated import executor_for
from impls.spark.session import check_session, warm_workers
from impls.spark.shipping import equip
from impls.transfer.certificate import certificate_of
from impls.transfer.settings import Transfer
from impls.worker.output import Output
from impls.worker.query import QuerySpec

__all__ = ["stream"]


def stream(
    df: DataFrame,
    *,
    key: str,
    operator: Operator,
    results: Output,
    state_dir: str | Path,
    checkpoint: str | Path,
    workers: int,
    bins: int = 256,
    mechanism: str = "megaphone-batched",
    options: Mapping[str, Any] | None = None,
    policy: str = "minimal_move",
    time: str | None = None,
    trigger: str = "0 seconds",
    durability: str = "process",
    log_dir: str | None = None,
    py_files: Sequence[str | Path] = (),
    replay_epochs: int = REPLAY_EPOCHS,
    tls: str = "none",
    on_epoch: Callable[[EpochRecord], None] | None = None,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
) -> StreamHandle:
    """Starts a stateful query and returns the handle that rescales, rebalances, describes and stops it.

    Args:
        df: a streaming DataFrame with Kafka's `partition` and `offset` columns, which give each key's record order.
        key: column of the key, integer, string or binary; its hash names its bin.
        operator: the keyed operator, see `impls.operators`.
        results: the topic that takes the results; read it with `impls.worker.results.Deduplicator`.
        state_dir: folder for the workers' state on each host that runs tasks; on a cluster in STATE_DIR/HOST.
        checkpoint: folder for offsets, plans and commands; the same folder again continues the query.
        workers: number of workers at the query's first start; later starts continue with what the last one had.
        bins: units of routing and movement, a power of two up to 16,384; fixed for the life of a checkpoint.
        mechanism: how a migration proceeds, see `impls.catalog.names()`.
        options: the mechanism's options.
        policy: how a rescale places bins, see `impls.placement`; options as in load_aware:imbalance=0.1.
        time: column of each record's scheduled time in µs since the Unix epoch, for latencies; None measures none.
        trigger: Structured Streaming's processing-time interval.
        durability: what the state survives: "none" the death of processes, as long as `state_dir` stays; "process" also
            its loss, from changelog and snapshots; "host" also the failure of a host, as commits are flushed to disk.
        log_dir: folder or URI (pyarrow's `from_uri`, s3://...) of changelog and snapshots; by default the checkpoint's.
        py_files: your own modules that the operator needs (.py, .zip) and folders of packages, sent to the executors.
        replay_epochs: most epochs of changelog that a recovery replays.
        tls: of bins between hosts: "none", "auto", or a file of certificate and key, see `impls.transfer.certificate`.
        on_epoch: called with every finished epoch.
        on_event: called with (kind, fields) when a command is taken and when the query starts or stops.

    Raises:
        UsageError: an argument cannot be used, or the checkpoint is another query's or in use.
    """
    check_bins(bins, workers)
    how = catalog.make(mechanism, **(options or {}))
    frame = with_heartbeat(prepared(df, key, operator, bins, time))
    kept = _checked(how, operator, durability, replay_epochs)
    settings = {"bins": bins, "key": key, "changelog": kept, "state": "own" if how.shared is None else "shared"}
    _ready(df.sparkSession, operator, results, py_files)
    opened = Checkpoint(checkpoint, settings, operator=operator, fsync=durability == "host")
    try:
        controller = Controller(initial(bins, workers, policy), how, clock_of(operator, bins))
        files = Files(log_dir or str(opened.own), fsync=durability == "host") if kept else None
        between = _transfer(master := df.sparkSession.sparkContext.master, how, tls)
        spec = QuerySpec(opened.query, bins, operator, results, _made(state_dir), files, how.shared, between)
        executor = executor_for(master, spec)
        driver = Driver(controller, opened, executor, files=files, replay_epochs=replay_epochs, on_epoch=on_epoch)
        writer = _writer(frame, opened, trigger)
        return StreamHandle(runner(writer), driver, opened, policy, on_event or (lambda _kind, _fields: None))
    except BaseException:
        opened.close()
        raise


def _ready(spark: SparkSession, operator: Operator, results: Output, py_files: Sequence[str | Path]) -> None:
    """Checks the session, sends the executors what they need, and connects the workers that there can be now."""
    check_session(spark)
    equip(spark, operator, py_files)
    warm_workers(spark, results)


def _writer(frame: DataFrame, opened: Checkpoint, trigger: str) -> DataStreamWriter:
    writer = frame.writeStream.queryName(f"rescale-{opened.query[:8]}").trigger(processingTime=trigger)
    return writer.option("checkpointLocation", opened.spark)


def _transfer(master: str | None, how: Mechanism, tls: str) -> Transfer | None:
    """Returns how bins go from host to host; None where there is one host or one store."""
    return None if is_local(master) or how.shared is not None else Transfer.new(*certificate_of(tls))


def _made(folder: str | Path) -> str:
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def _checked(how: Mechanism, operator: Operator, durability: str, replay_epochs: int) -> bool:
    """Returns whether a changelog is kept: not where a shared store is itself what is durable."""
    check_level(durability, replicates=how.replicates)
    if replay_epochs < 1:
        raise UsageError(f"replay_epochs must be at least 1, not {replay_epochs}.")
    if how.shared is not None:
        if operator.event_time is not None:
            raise UsageError("A store that all workers share has no timers: choose another mechanism.")
        how.shared.check()
    return durability != "none" and how.shared is None
