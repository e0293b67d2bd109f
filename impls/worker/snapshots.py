"""Writing the snapshot file of a worker's epoch."""

import lmdb

from impls.durability import snapshot as snapshots
from impls.faults import fault
from impls.protocol.report import Report, Written
from impls.worker.query import Task

__all__ = ["write_snapshot"]


def write_snapshot(task: Task, txn: lmdb.Transaction, report: Report) -> None:
    """Writes the images of the bins that the order names and that this worker holds or queues records of.

    `txn` reads, without buffers, what the epoch has committed.
    """
    spec, order, written = task.spec, task.order, task.order.written
    here = set(order.states_at(task.worker)) | set(report.moves.bins)  # sources of this epoch's pulls included
    images = []
    for bin_ in order.snapshot:
        is_routed = int(written.plan.routing[bin_]) == task.worker
        if bin_ in here or is_routed:
            images.append(snapshots.image_of(txn, bin_, state=bin_ in here, queue=is_routed))
    if images and spec.files is not None:
        raw = snapshots.encode(spec.query, task.worker, task.epoch, images)
        fault(
            "during-snapshot", worker=task.worker, epoch=task.epoch, attempt=task.attempt, migrating=written.migrating
        )
        spec.files.write(snapshots.snapshot_name(task.epoch, task.worker, order.generation), raw)
        report.snapshot = Written([image.bin for image in images], len(raw))
