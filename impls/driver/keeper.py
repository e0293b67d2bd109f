"""The driver's side of durability: bins to snapshot, the manifest, and files that are no longer needed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from impls.durability import frame as frames
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.schedule import (
    REPLAY_EPOCHS,
    FinishedEpoch,
    Manifest,
    SnapshotSchedule,
    needless_log,
    needless_snapshots,
    read_manifest,
    write_manifest,
)
from impls.protocol.report import Report


class Keeper:
    """to_snapshot() before every epoch, observe() after it; between two epochs only the driver touches the files.

    Raises UsageError from the constructor when the manifest cannot be used.
    """

    def __init__(
        self, files: Files, query: str, bins: int, *, epoch: int, generation: int, replay_epochs: int = REPLAY_EPOCHS
    ):
        files.make_folders([frames.FOLDER, snapshots.FOLDER])
        self._files, self._generation = files, generation
        self._schedule = SnapshotSchedule(read_manifest(files, query, bins), epoch=epoch, replay_epochs=replay_epochs)
        self._log = {(n[0], n[1]): size for n, size in _numbered(files, frames.FOLDER, 2)}
        self._images = {(n[0], n[1], n[2]): size for n, size in _numbered(files, snapshots.FOLDER, 3)}
        self._schedule.adopt(self._images)
        self._delete(self._schedule.manifest)

    @property
    def kept_bytes(self) -> int:
        """Bytes of all changelog frames and snapshots."""
        return sum(self._log.values()) + sum(self._images.values())

    def to_snapshot(self, epoch: int) -> tuple[int, ...]:
        """Returns the bins to snapshot at the end of an epoch."""
        return self._schedule.to_snapshot(epoch)

    def observe(
        self,
        epoch: int,
        reports: Sequence[Report],
        location: NDArray[np.int32],
        routing: NDArray[np.int32],
        sizes: NDArray[np.int64],
    ) -> None:
        """Takes in a finished epoch; every few epochs writes the manifest and deletes the files that it replaces."""
        written = {r.worker: (r.snapshot.bins, r.snapshot.bytes) for r in reports if r.snapshot.bins}
        changed = sorted({bin_ for report in reports for bin_ in report.changelog.bins})
        log_bytes = sum(report.changelog.bytes for report in reports)
        before = self._schedule.manifest
        self._schedule.observe(
            FinishedEpoch(epoch, self._generation, changed, log_bytes, written, location, routing, sizes)
        )
        self._log |= {(epoch, report.worker): report.changelog.bytes for report in reports}
        self._images |= {(epoch, worker, self._generation): size for worker, (_, size) in written.items()}
        if epoch % self._schedule.manifest_epochs == 0:
            write_manifest(self._files, before)  # this epoch may be run again, from the state of the one before
            self._delete(before)

    def _delete(self, written: Manifest) -> None:
        """Deletes the files that recovery from the manifest written, or from the one to come, does not read."""
        log = needless_log(written, self._log)
        images = needless_snapshots([written, self._schedule.manifest], self._images)
        self._files.delete([frames.frame_name(*name) for name in log])
        self._files.delete([snapshots.snapshot_name(*name) for name in images])
        self._schedule.forget(images)
        for frame in log:
            del self._log[frame]
        for image in images:
            del self._images[image]


def _numbered(files: Files, folder: str, parts: int) -> list[tuple[tuple[int, ...], int]]:
    """Returns (numbers of the name, bytes) of the files in a folder that are named by so many numbers."""
    out = []
    for name, size in files.names(folder):
        numbers = name.rpartition("/")[2].split("-")
        if len(numbers) == parts and all(number.isdigit() for number in numbers):
            out.append((tuple(map(int, numbers)), size))
    return out
