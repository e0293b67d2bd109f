"""`adopt`: makes a checkpoint of this project's, in one step, from that of a stopped Spark query."""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from impls.adoption.cutover import FILES, IMAGES_SCHEMA, Target, names_of, write_cutover, write_images
from impls.adoption.found import NativeState, Wanted, found_in
from impls.adoption.native import NativeLog, check_topics, read_log
from impls.adoption.reading import operators_of, plain_place, reading_session, refused, the_operator
from impls.driver.checkpoint import Checkpoint
from impls.durability import frame as frames
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.schedule import NAME as MANIFEST
from impls.durability.whole import made_whole
from impls.errors import CorruptStateError, UsageError
from impls.protocol.arrays import check_bins
from impls.spark.secrecy import check_channel, secrets_of
from impls.worker.sinks import Nowhere

Tell = Callable[[int, int], None]
_LOG = logging.getLogger(__package__)
_EVERY_S = 0.5


@contextmanager
def _tell_progress(context: SparkContext, tell: Tell | None) -> Iterator[None]:
    """Calls `tell(tasks done, tasks)` twice a second for the jobs that this thread starts in the block."""
    if tell is None:
        yield
        return
    group, end = f"adopt-{uuid.uuid4().hex}", threading.Event()
    context.setJobGroup(group, "adopting a checkpoint")

    def watch() -> None:
        last = (0, 0)
        while not end.wait(_EVERY_S):
            now = _tasks(context, group)
            if now != last and now[1]:
                last = now
                try:
                    tell(*now)
                except Exception as error:  # the adoption goes on
                    _LOG.warning("What shows the progress has failed: %s: %s", type(error).__name__, error)

    watcher = threading.Thread(target=watch, name="adopt-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


_LEVELS = ("process", "host")


@dataclass(frozen=True)
class Adopted:
    """What was adopted.

    Attributes:
        batch: the native query's last committed batch; the first epoch is the one behind it.
        planned: whether a batch was planned behind it, whose records are processed anew.
        entries, state_bytes: entries of state, and bytes of their values.
        file_bytes: bytes of the snapshots.
        seconds: from the begin to the checkpoint that can be started.
    """

    batch: int
    planned: bool
    entries: int
    state_bytes: int
    file_bytes: int
    seconds: float


def adopt(
    spark: SparkSession,
    native: str | Path,
    into: str | Path,
    *,
    bootstrap: str,
    aggregates: Mapping[str, str] | None = None,
    processor: str = "",
    pandas: bool = False,
    keys: Sequence[str] | None = None,
    output_mode: str = "",
    types: str = "",
    bins: int = 256,
    workers: int = 2,
    durability: str = "process",
    log_dir: str | None = None,
    kafka: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
) -> Adopted:
    """Makes a checkpoint of a stopped Spark query's, which a query of this project goes on from.

    `impls.aggregate` goes on with a `groupBy().agg()`, `impls.transform_with_state` with a `transformWithState`; they
    are given the checkpoint, and the same keys, bins, log_dir and aggregates or processor.

    The native checkpoint is only read. State, offsets and the epoch's number are those behind the last batch that Spark
    has committed. A batch that was planned behind it is processed anew, so a sink may see its results twice, as after a
    restart of Spark's own.

    Args:
        spark: a session, of the same Spark version as the query's or a newer one.
        native: the query's checkpointLocation, a folder or a URI.
        into: folder of the new checkpoint, which must not be there or be empty.
        bootstrap: the brokers of the query's input, which are asked whether they still have what is to be read.
        aggregates: name of each result and the aggregate, in the order of the query, see `impls.aggregate`.
        processor: name of the processor's class.
        pandas: whether the processor takes frames of pandas.
        keys: names of the key's columns in the stream to come; by default those in the state.
        output_mode: "update" or "append", as the query had it; needed for windows under a watermark, whose state does
            not tell.
        types: of columns that the aggregates read, as DDL ("price decimal(8,2)"): needed of decimals of up to 8 digits
            in a sum, and up to 11 in an average, of which Spark keeps numbers without their point.
        bins: units of routing and movement, as for `impls.stream`.
        workers: number of workers that begin.
        durability: "process" or "host"; the query is then started with the same or the other one of them.
        log_dir: where changelog and snapshots are to be, as for `impls.stream`.
        kafka: further librdkafka settings to reach the broker.
        tell: called with (tasks done, tasks) while state is read and written.

    Raises:
        UsageError: the query cannot be adopted, which one sentence says; nothing is left then.
    """
    begin, location = time.monotonic(), _location(native)
    check_bins(bins, workers)
    check_place(durability, log_dir)
    check_channel(spark.sparkContext.getConf(), secrets_of(Nowhere(), None, log_dir, "none"))
    _check_stopped(spark, location)
    log = read_log(Files(location))
    reader = reading_session(spark, state_ids=log.state_ids)
    wanted = Wanted(aggregates, processor, pandas, keys, output_mode, types)
    with plain_place(location, str(spark.sparkContext.master)) as source:
        state = the_operator(operators_of(reader, source, log.batch), location)
        check_topics({**(kafka or {}), "bootstrap.servers": bootstrap}, log.offsets)
        found = found_in(reader, source, log, state, wanted, bins=bins)
        with made_whole(Path(into)) as folder:
            place = (bins, workers, durability == "host", log_dir)
            rows = _fill(folder, location, log, found, place=place, tell=tell)
    entries, size, written = (sum(row[name] for row in rows) for name in ("entries", "size", "written"))
    return Adopted(log.batch, log.planned > 0, entries, size, written, time.monotonic() - begin)


_Place = tuple[int, int, bool, str | None]
"""Bins, workers, whether files are flushed to disk, and the folder of changelog and snapshots."""


def _fill(
    folder: Path, location: str, log: NativeLog, successor: NativeState, *, place: _Place, tell: Tell | None
) -> list[Any]:
    """Makes the checkpoint in a folder and returns what was written: (bin, entries, size, written)."""
    bins, workers, fsync, log_dir = place
    settings = {"key": successor.key, "mode": "micro-batch", "bins": bins, "changelog": True, "state": "own"}
    opened = Checkpoint(folder, settings, operator=successor.operator, fsync=fsync)
    try:
        files = Files(log_dir or str(opened.own), fsync)
        target = Target(files, opened.query, log.batch, bins, successor.timers)
        with cleared_on_error(target):
            with refused(location), _tell_progress(successor.entries.sparkSession.sparkContext, tell):
                rows = _write(target, successor.entries)
            _check_unmoved(location, log)
            sizes = np.zeros(bins, np.int64)
            sizes[[row["bin"] for row in rows]] = [row["size"] for row in rows]
            successor.keep(folder)
            opened.keep_form(successor.operator.state_form(), "binary")
            write_cutover(opened, successor.operator, files, log, sizes=sizes, workers=workers)
    finally:
        opened.close()
    return rows


def _location(native: str | Path) -> str:
    """Returns a checkpoint's place as both Spark and pyarrow take it: a whole path, or a URI of another file system."""
    text = str(native)
    if text.startswith("file:"):
        text = text.removeprefix("file://").removeprefix("file:")
        text = text if Path(text).exists() else unquote(text)  # Hadoop's paths are literal, other URIs are not
    return text if "://" in text else str(Path(text).absolute())


def check_place(durability: str, log_dir: str | None) -> None:
    """Raises UsageError for a level that keeps no state, and for a log_dir with files of a query, whole or begun."""
    if durability not in _LEVELS:
        raise UsageError(f"The durability {durability!r} keeps no copy of state to adopt into: use process or host.")
    files = Files(log_dir) if log_dir is not None else None
    if files is not None and (
        files.read(MANIFEST) is not None or any(files.names(folder) for folder in (frames.FOLDER, snapshots.FOLDER))
    ):
        raise UsageError(f"The log_dir {files.place} has the files of another query: name an empty one.")


@contextmanager
def cleared_on_error(target: Target) -> Iterator[None]:
    """Deletes the target's own files, if the block fails; those of another query that has begun meanwhile stay."""
    try:
        yield
    except BaseException:
        target.files.delete([name for name in (*names_of(target), MANIFEST) if _is_of(target, name)])
        raise


def _is_of(target: Target, name: str) -> bool:
    """Returns whether a file is there and names the target's query as its own."""
    raw = target.files.read(name)
    if raw is None:
        return False
    try:
        query = json.loads(raw)["query"] if name == MANIFEST else snapshots.decode(raw, name)[0]
    except (CorruptStateError, ValueError, KeyError, TypeError):
        return False
    return bool(query == target.query)


def _write(target: Target, entries: DataFrame) -> list[Any]:
    """Writes the snapshots of all bins, those of a file in one task, and returns (bin, entries, size, written)."""
    target.files.make_folders([frames.FOLDER, snapshots.FOLDER])
    number, each = min(FILES, target.bins), target.bins // min(FILES, target.bins)
    routed = entries.repartitionById(number, F.expr(f"cast(floor(bin / {each}) as int)"))
    return routed.mapInArrow(partial(write_images, target), IMAGES_SCHEMA).collect()


def _check_stopped(spark: SparkSession, location: str) -> None:
    """Refuses a query that runs in this application; of others there is no sign, as Spark locks no checkpoint."""
    running = spark._jsparkSession.sharedState().activeStreamingQueries().values()  # of all sessions
    for query in running:
        if _location(query.resolvedCheckpointRoot()) == location:
            raise UsageError(f"The query {query.name() or query.id()} of {location} is running: stop it first.")


def _check_unmoved(location: str, before: NativeLog) -> None:
    now = read_log(Files(location))
    if (now.batch, now.planned) != (before.batch, before.planned):
        raise UsageError(
            f"The query of {location} is running: it went from batch {before.batch} to {now.batch} while its state was "
            "read; stop it first."
        )
