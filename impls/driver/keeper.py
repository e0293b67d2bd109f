"""What the driver keeps for recovery: bins to snapshot, the manifest, files in use."""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from impls.durability import frame as frames
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.kept import KeptLog
from impls.durability.pins import Pin, Pins
from impls.durability.schedule import (
    REPLAY_EPOCHS,
    FinishedEpoch,
    Manifest,
    SnapshotSchedule,
    needless_snapshots,
    read_manifests,
    write_manifest,
)
from impls.errors import UsageError
from impls.protocol.ended import EndedEpoch
from impls.protocol.report import Report

_LOG = logging.getLogger(__name__)


class Keeper:
    """to_snapshot() before every epoch, observe() after it; between two epochs only the driver touches the files.

    Raises UsageError from the constructor when the manifest cannot be used.

    Attributes:
        files: the query's durable files.
        swept_bytes: of the files that writers which were killed had left half-written, deleted at this start.

    Args:
        files: the query's durable files.
        query: identity of the query.
        ended: the last epoch observed.
        generation: that of the driver.
        sizes: int64, shape (B,): bytes of their state then.
        replay_epochs: number of epochs that a recovery may replay.
        begins_own: only the operator knows with what state bins begin, so each gets a snapshot as soon as it can.
    """

    def __init__(
        self,
        files: Files,
        query: str,
        *,
        ended: EndedEpoch,
        generation: int,
        sizes: NDArray[np.int64],
        replay_epochs: int = REPLAY_EPOCHS,
        begins_own: bool = False,
    ):
        files.make_folders([frames.FOLDER, snapshots.FOLDER])
        self.files, self._generation = files, generation
        self._ended, self._pins, self._lock = ended, Pins(), threading.Lock()
        self.swept_bytes = sum(files.sweep(folder) for folder in (frames.FOLDER, snapshots.FOLDER))
        if self.swept_bytes:
            _LOG.info("%s bytes of files that killed workers had left half-written are deleted.", self.swept_bytes)
        self._written, newest = read_manifests(files, query, len(ended.location))
        self._schedule = SnapshotSchedule(
            newest, epoch=ended.epoch, sizes=sizes, location=ended.location, replay_epochs=replay_epochs,
            begins_own=begins_own,
        )  # fmt: skip
        self._first = True  # no epoch was observed since the start, or bins lack their first snapshots
        self._log = KeptLog(((n[0], n[1]), size) for n, size in _numbered(files, frames.FOLDER, 2))
        self._images = {(n[0], n[1], n[2]): size for n, size in _numbered(files, snapshots.FOLDER, 3)}
        self._schedule.adopt(self._images)
        self._delete(self._written)

    @property
    def kept_bytes(self) -> int:
        """Bytes of all changelog frames and snapshots."""
        return self._log.bytes + sum(self._images.values())

    def pin(self) -> tuple[Pin, Callable[[], None]]:
        """Pins the last epoch, so that its files stay, and returns the pin and what lets go of it, for any thread.

        Raises UsageError where no epoch has ended, or too many are pinned.
        """
        with self._lock:
            if self._ended.epoch < 0:
                raise UsageError("No epoch of the query has ended yet.")
            pin = Pin(self._ended, self._schedule.manifest)
            return pin, partial(self._pins.release, self._pins.hold(pin))

    def to_snapshot(self, epoch: int) -> tuple[int, ...]:
        """Returns the bins to snapshot at the end of an epoch."""
        return self._schedule.to_snapshot(epoch)

    def observe(
        self, ended: EndedEpoch, reports: Sequence[Report], routing: NDArray[np.int32], sizes: NDArray[np.int64]
    ) -> None:
        """Takes in a finished epoch; every few epochs writes the manifest and deletes the files that it replaces.

        The first epoch behind a start counts too, so that a driver that ends soon has not made its snapshots in vain.
        """
        epoch, location = ended.epoch, ended.location
        written = {r.worker: (r.snapshot.bins, r.snapshot.bytes) for r in reports if r.snapshot.bins}
        changed = sorted({bin_ for report in reports for bin_ in report.changelog.bins})
        log_bytes = sum(report.changelog.bytes for report in reports)
        before = self._schedule.manifest
        with self._lock:
            self._ended = ended
            self._schedule.observe(
                FinishedEpoch(epoch, self._generation, changed, log_bytes, written, location, routing, sizes)
            )
        for report in reports:
            self._log.add(epoch, report.worker, report.changelog.bytes + report.changelog.besides)
        self._images |= {(epoch, worker, self._generation): size for worker, (_, size) in written.items()}
        if self._first or epoch % self._schedule.manifest_epochs == 0:
            if before.base.max() < epoch:  # this epoch may be run again, from the state of the one before
                self._written = before
            write_manifest(self.files, self._written, self._schedule.manifest)
            self._delete(self._written)
            self._first = bool(len(self._schedule.unknown))

    def _delete(self, written: Manifest) -> None:
        """Deletes files that neither recovery from the manifest written, or from the one to come, reads, nor a pin."""
        pins = self._pins.held()  # one that is made from now on needs nothing that is needless now
        log = self._log.take_needless(written, [pin.epochs for pin in pins])
        superseded = needless_snapshots([written, self._schedule.manifest], self._images)
        images = needless_snapshots([pin.manifest for pin in pins], superseded)
        self.files.delete([frames.frame_name(*name) for name in log])
        self.files.delete([snapshots.snapshot_name(*name) for name in images])
        self._schedule.forget(superseded)  # what a pin keeps is no reason to write others anew
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
