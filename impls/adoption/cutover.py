"""The cutover: a checkpoint that says that all epochs up to the native query's last batch have been run.

Epochs go on with the number behind that batch, so a sink that passes over the epochs it has seen goes on too. Spark's
part says that this batch was committed and where its sources then were; this project's part has a base at its end
(`impls.driver.checkpoint`), and a manifest of snapshots that show the same moment.
"""

import json
import uuid
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impls import catalog
from impls.adoption.images import GENERATION, file_of
from impls.adoption.native import NativeLog
from impls.driver.checkpoint import Checkpoint
from impls.driver.journal import replace_bytes
from impls.durability.files import Files
from impls.durability.manifest import Manifest, write_manifest
from impls.operators.base import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.observation import Observation

__all__ = ["write_cutover"]

_TICKS = b"0"  # of the source that begins an epoch every second, see `impls.spark.heartbeat`


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
