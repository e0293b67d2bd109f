"""The cutover: snapshots of bins, and a checkpoint that says that all epochs up to the last batch have been run.

Epochs go on with the number behind that batch, so a sink that passes over the epochs it has seen goes on too. Spark's
part says that this batch was committed and where its sources then were; this project's part has a base at its end
(`impls.driver.checkpoint`), and a manifest of snapshots that show the same moment.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls import catalog
from impls.adoption.native import NativeLog
from impls.driver.checkpoint import Checkpoint
from impls.driver.journal import replace_bytes
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.schedule import Manifest, write_manifest
from impls.operators.base import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.view import Observation
from impls.store.entries import stored_entry, stored_value
from impls.store.naming import time_of
from impls.store.tables import DUE, STATE, bin_key

FILES = 64  # of snapshots, each with neighbouring bins: a worker has one in memory when it restores its bins
GENERATION = 1  # of the driver that the files' names say: none has run yet
IMAGES_SCHEMA = "bin int, entries long, size long, written long"
_IMAGES = pa.schema([("bin", pa.int32()), *((name, pa.int64()) for name in ("entries", "size", "written"))])


@dataclass(frozen=True)
class Target:
    """Where snapshots go: the files of a query with `bins` bins, at the end of an epoch.

    Entries whose key begins with one of `timers` have a time behind it, at which the bin is to be looked at.
    """

    files: Files
    query: str
    epoch: int
    bins: int
    timers: tuple[bytes, ...] = ()


def file_of(bin_: int, bins: int) -> int:
    """Returns the number of the file with a bin, which takes the place of a worker's in the file's name."""
    return bin_ * min(FILES, bins) // bins


def names_of(target: Target) -> list[str]:
    """Returns the names of the snapshots that are written of all bins."""
    numbers = range(min(FILES, target.bins))
    return [snapshots.snapshot_name(target.epoch, number, GENERATION) for number in numbers]


def write_images(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the snapshot of the bins of one file and yields (bin, entries, bytes of values, bytes of the file).

    A task that is repeated writes the same file again.

    Args:
        target: where to.
        batches: all entries of these bins: columns bin (int32), key and value (binary).
    """
    rows = [row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in _ENTRY), strict=True)]
    if not rows:
        return
    items = sorted(stored_entry(*row) for row in rows)
    images = []
    for number, group in groupby(items, key=_bin_of):
        own = list(group)
        own += _earliest_timer(number, own, target.timers)
        images.append(snapshots.image_at_rest(number, list(map(itemgetter(0), own)), list(map(itemgetter(1), own))))
    file = file_of(images[0].bin, target.bins)
    raw = snapshots.encode(target.query, file, target.epoch, images)
    target.files.write(snapshots.snapshot_name(target.epoch, file, GENERATION), raw)
    written = [len(raw)] + [0] * (len(images) - 1)
    done = [(i.bin, i.entries, i.size, size) for i, size in zip(images, written, strict=True)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*done, strict=True), _IMAGES.types, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, schema=_IMAGES)


_ENTRY = ("bin", "key", "value")


def _earliest_timer(
    bin_: int, items: list[tuple[bytes, bytes]], timers: tuple[bytes, ...]
) -> list[tuple[bytes, bytes]]:
    """Returns the note of a bin's earliest timer, see `BinState.set_earliest_timer`; none for a bin without one."""
    begin = len(bin_key(STATE, bin_))
    times = [time_of(name[begin + 1 :]) for name, _ in items if name.startswith(timers, begin)] if timers else []
    if not times:
        return []
    name = bin_key(DUE, bin_)
    return [(name, stored_value(name, min(times).to_bytes(8, "big", signed=True)))]


def _bin_of(item: tuple[bytes, bytes]) -> int:
    return int.from_bytes(item[0][1:3], "big")


_TICKS = b"0"  # of the source that begins an epoch every second, see `impls.spark.compiled`


def write_cutover(
    opened: Checkpoint, operator: Operator, files: Files, log: NativeLog, *, sizes: NDArray[np.int64], workers: int
) -> None:
    """Writes all of a checkpoint that the snapshots do not say.

    Args:
        opened: the new checkpoint.
        operator: what goes on with the state.
        files: where the snapshots are.
        log: the native query's.
        sizes: bytes of the values of each bin, shape (B,); a bin with none has no snapshot.
        workers: between which bins are placed evenly.
    """
    _write_manifest(files, opened.query, log.batch, sizes)
    _write_base(opened, operator, log, initial(len(sizes), workers), sizes)
    _write_sparks_part(Path(opened.spark), log)


def _write_sparks_part(folder: Path, log: NativeLog) -> None:
    """Writes Spark's checkpoint of a query that has run the native query's batches and reads its sources on."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    head = {"batchWatermarkMs": 0, "batchTimestampMs": log.head.get("batchTimestampMs", 0), "conf": {}}
    ends = {log.batch: log.sources}
    if log.batch > 0:
        ends[log.batch - 1] = log.before or log.sources  # Spark asks for it, and reads nothing by it
    for batch, sources in ends.items():
        lines = [b"v1", json.dumps(head, separators=(",", ":")).encode(), *sources, _TICKS]
        replace_bytes(folder / "offsets" / str(batch), b"\n".join(lines), fsync=True)
        replace_bytes(folder / "commits" / str(batch), b'v1\n{"nextBatchWatermarkMs":0}', fsync=True)
    replace_bytes(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode(), fsync=True)


def _write_manifest(files: Files, query: str, epoch: int, sizes: NDArray[np.int64]) -> None:
    """Writes the manifest of snapshots that all show the end of an epoch."""
    there, bins = sizes > 0, len(sizes)
    number = np.where(there, [file_of(bin_, bins) for bin_ in range(bins)], -1)
    manifest = Manifest(
        query,
        base=np.full(bins, epoch, np.int64),
        file_epoch=np.where(there, epoch, -1),
        state_worker=number,
        queue_worker=number,
        generation=np.where(there, GENERATION, -1),
    )
    write_manifest(files, manifest)


def _write_base(
    opened: Checkpoint, operator: Operator, log: NativeLog, assignment: NDArray[np.int32], sizes: NDArray[np.int64]
) -> None:
    """Writes the controller as it is behind an epoch that placed bins by an assignment and moved none.

    Its clock is Spark's: that epoch ran under the batch's watermark and at its time, the next one has the next
    watermark.
    """
    clock = clock_of(operator, len(assignment))
    controller = Controller(assignment, catalog.make("none"), clock)
    if clock is not None:
        clock.watermark = _micros(int(log.head.get("batchWatermarkMs", 0)))
    plan = controller.plan(log.batch, GENERATION, int(log.head.get("batchTimestampMs", 0)))
    controller.observe(Observation(log.batch, sizes=(np.arange(len(sizes), dtype=np.int32), sizes)))
    if clock is not None:
        clock.watermark = _micros(log.watermark_ms)
    opened.rebase(log.batch, controller.to_json(), plan.to_json())


def _micros(watermark_ms: int) -> int | None:
    """Returns a watermark of Spark's, 0 before there is one, in the unit of this project's."""
    return watermark_ms * 1000 if watermark_ms else None
