"""`release`: makes a native checkpoint, in one step, from that of a stopped query, with which a Spark query goes on."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from impls.adoption.reading import BREAKING, state_frame
from impls.driver.checkpoint import locked
from impls.durability.pins import Pin
from impls.durability.schedule import read_manifests
from impls.durability.whole import made_whole
from impls.errors import UsageError
from impls.processor.start import OUTPUT_MODES
from impls.reading.stored import StoredQuery
from impls.releasing.frames import check_event_time, check_topics, delay_of, readings_for
from impls.releasing.matching import EVERY_FAMILY, check_goes_back, operator_in, rows_of
from impls.releasing.position import Position, position_of
from impls.releasing.reading import Pieces, placed
from impls.releasing.template import (
    PARTITIONS,
    begin_checkpoint,
    head_of,
    make_template,
    move_metadata,
    settings_of_state,
)
from impls.spark.cause import cause_of
from impls.spark.compiled import new_object
from impls.spark.master import is_local

_REWRITE = Path(__file__).with_name("Rewrite.java")


@dataclass(frozen=True)
class Released:
    """What was released.

    Attributes:
        epoch: the last one of the query.
        batch: number of the batch that stands for it; the Spark query's first one has the number behind it.
        partitions: of the Spark query's state.
        seconds: from the begin to the checkpoint that can be started.
    """

    epoch: int
    batch: int
    partitions: int
    seconds: float


def release(
    frame: DataFrame,
    checkpoint: str | Path,
    into: str | Path,
    *,
    output_mode: str = "update",
    partitions: int | None = None,
    place: str = "",
    log_dir: str | None = None,
    scratch: str | None = None,
) -> Released:
    """Makes a checkpoint of Spark's own from that of a stopped query, with which the same query goes on in Spark.

    The query is one of `impls.transform_with_state` or `impls.aggregate`, and its Spark twin that which writes the
    frame: the same processor or aggregates, grouping key and topics. Spark runs one batch of it without records, so
    that all it keeps of a query is its own; then its own writer writes the state. Offsets, watermark and the batch's
    number are those behind the last epoch that has ended, and so the Spark query's first batch has the number behind
    it. The checkpoint here is only read. Start one of the two queries, not both.

    The session's settings hold for the new checkpoint, such as `spark.sql.streaming.stateStore.checkpointFormatVersion`
    and `encodingFormat`; its state is kept by RocksDB.

    Args:
        frame: what the Spark query writes: the DataFrame whose `writeStream` is called; of a local session.
        checkpoint: the checkpoint folder here; of a chain that of its only stage that reads no other.
        into: folder of the new checkpoint, which must not be there or be empty.
        output_mode: that of the Spark query.
        partitions: those of its state; by default as many as `spark.sql.shuffle.partitions` says.
        place: the folder or URI by which Spark will find the new checkpoint, if it is to be copied elsewhere: what
            Spark notes of a processor's state names its place.
        log_dir: folder or URI of changelog and snapshots, if the query has one.
        scratch: a folder with room for the state; by default that of temporary files.

    Raises:
        UsageError: the query runs, or cannot be released, or the frame is that of another query, which one sentence
            says; nothing is left then.
        StateError: a file of the checkpoint is missing or damaged.
    """
    begin, folder, spark = time.monotonic(), Path(checkpoint).absolute(), frame.sparkSession
    _check(spark, str(into), output_mode, partitions, scratch)
    number = partitions or int(str(spark.conf.get(PARTITIONS)))
    check_goes_back(StoredQuery(folder, log_dir))  # before anything is made
    with (
        _room_in_a_sentence(),
        locked(folder),
        settings_of_state(spark, number),
        made_whole(Path(into)) as half,
        tempfile.TemporaryDirectory(prefix="release-", dir=scratch) as beside,
    ):
        _check_names(str(half), beside)
        stored, readings, template = _pinned(folder, log_dir), readings_for(frame), Path(beside) / "template"
        check_event_time(frame, delay := delay_of(frame), output_mode, stored.form)
        position = position_of(stored, delay, readings)
        check_topics(readings, position.topics)
        make_template(frame, template, position.lines, output_mode)
        pieces = Pieces(stored, min(stored.bins, 4 * spark.sparkContext.defaultParallelism), scratch, position.until)
        with _in_a_sentence():
            _write(frame, pieces, template, half, position)
        move_metadata(half, template, place.rstrip("/") or f"file:{Path(into).absolute()}")
    return Released(position.epoch, position.batch, number, time.monotonic() - begin)


def _check(spark: SparkSession, into: str, output_mode: str, partitions: int | None, scratch: str | None) -> None:
    if output_mode not in OUTPUT_MODES:
        raise UsageError(f"The output mode {output_mode!r} is unknown: use {' or '.join(OUTPUT_MODES)}.")
    if partitions is not None and partitions < 1:
        raise UsageError(f"The state needs at least 1 partition, not {partitions}.")
    if scratch is not None and not Path(scratch).is_dir():
        raise UsageError(f"There is no folder {scratch} for the state.")
    if "://" in into:
        raise UsageError(f"The checkpoint is made in a folder of this host: name one, and {into} as its place.")
    if not is_local(master := spark.sparkContext.master):
        raise UsageError(f"The checkpoint is made in folders of this host, in a session on local[N], not on {master}.")


def _check_names(*folders: str) -> None:
    """Raises UsageError for a folder whose path Spark takes for another, see `impls.adoption.reading.plain_place`."""
    for folder in folders:
        if BREAKING.search(folder):
            raise UsageError(
                f"Spark does not write state into {folder}: name a folder without a blank, %, # or a bracket in its "
                "path, also for scratch."
            )


def _pinned(folder: Path, log_dir: str | None) -> StoredQuery:
    """Returns what a checkpoint says, pinned to the last epoch, so that it travels to tasks."""
    stored = StoredQuery(folder, log_dir)
    ended, manifests = stored.ended(None), read_manifests(stored.files, stored.query, stored.bins)
    fitting = (one for one in manifests if one.file_epoch.max() <= ended.epoch)
    newest = max(fitting, key=lambda one: int(one.file_epoch.max()))
    return StoredQuery(folder, log_dir, Pin(ended, newest))


def _write(frame: DataFrame, pieces: Pieces, template: Path, half: Path, position: Position) -> None:
    """Writes the new checkpoint."""
    spark, state = frame.sparkSession, operator_in(template, frame)
    wide, families = rows_of(frame, pieces, template, state)
    begin_checkpoint(template, half, position.batch, position.lines, position.head(head_of(template)))
    like = state_frame(spark, str(template), 0, state.number, **EVERY_FAMILY)
    rows = placed(wide, state.partitions)
    new_object(spark, _REWRITE, in_tasks=True).run(
        rows._jdf, families, like._jdf, str(template), str(half), position.batch, position.watermark_ms
    )


@contextmanager
def _room_in_a_sentence() -> Iterator[None]:
    """Turns what the system says of files, such as of a full disk, into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"The checkpoint cannot be made: {error}.") from error


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Turns what Spark says of an error, also of one in its tasks, into a UsageError."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        cause = cause_of(str(error)).removeprefix("The query failed: ")
        raise UsageError(f"The state cannot be released: {cause}") from error
