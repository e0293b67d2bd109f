"""Which bins are snapshotted in an epoch, and which files are no longer needed. Pure: no clock, no files."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from impls.durability.manifest import Manifest, SnapshotName

__all__ = ["REPLAY_EPOCHS", "FinishedEpoch", "SnapshotSchedule", "needless_log", "needless_snapshots"]

REPLAY_EPOCHS = 300
MANIFEST_EPOCHS = 10
_PLACES = ("file_epoch", "state_worker", "queue_worker", "generation")
_LOG_BYTES = 32 << 20  # of changelog that is always allowed; above it, half of the state's size is
_FILE_BYTES = 16 << 20  # of superseded images that is always allowed


@dataclass(frozen=True)
class FinishedEpoch:
    """What the reports of an epoch say about changelog and snapshots.

    Attributes:
        epoch, generation: the epoch, and of the driver that ran it.
        changed: bins whose state or queue changed, or that changed their location.
        log_bytes: bytes of all frames of the epoch.
        written: by worker, the bins in its snapshot file and the file's bytes.
        location, routing: int32, shape (B,), after the epoch.
        sizes: int64, shape (B,): bytes of the bins' state.
    """

    epoch: int
    generation: int
    changed: Sequence[int]
    log_bytes: int
    written: Mapping[int, tuple[Sequence[int], int]]
    location: NDArray[np.int32]
    routing: NDArray[np.int32]
    sizes: NDArray[np.int64]


class SnapshotSchedule:
    """to_snapshot() before each epoch, observe() after it; the manifest it holds becomes valid once it is written.

    Bins go in turn, the oldest snapshot first, so many an epoch that all are done in a cycle: as long as the replay of
    `replay_epochs` allows, shorter where the changelog grows faster than the state is large. A bin that has not changed
    since its snapshot costs nothing.
    """

    def __init__(self, manifest: Manifest, *, epoch: int, replay_epochs: int = REPLAY_EPOCHS):
        self.manifest = replace(manifest, base=manifest.base.copy())
        self._replay = replay_epochs
        bins = len(manifest.base)
        self._changed = np.full(bins, epoch, np.int64)  # what changed before a driver's start is not known any more
        self._sizes = np.zeros(bins, np.int64)
        self._images = np.zeros(bins, np.int64)  # bytes of each bin's newest image: more than its values' alone
        self._log: deque[int] = deque(maxlen=replay_epochs)
        self._file_bytes: dict[SnapshotName, int] = {}

    @property
    def manifest_epochs(self) -> int:
        """Number of epochs between two manifests."""
        return max(1, min(MANIFEST_EPOCHS, self._replay // 10))

    def cycle(self) -> int:
        """Returns the number of epochs in which every bin is snapshotted once."""
        longest = max(1, self._replay - 2 * self.manifest_epochs)
        budget = _LOG_BYTES + int(self._sizes.sum()) // 2
        growth = sum(self._log) / max(1, len(self._log))
        return longest if growth * longest <= budget else max(1, int(budget / growth))

    def to_snapshot(self, epoch: int) -> tuple[int, ...]:
        """Returns the bins to snapshot at the end of an epoch, ascending."""
        stale = np.flatnonzero(self._changed > self.manifest.base)
        if not len(stale):
            return ()
        cycle = self.cycle()
        order = stale[np.argsort(self.manifest.base[stale], kind="stable")]
        weight = np.maximum(self._sizes[order], 1)
        before = np.cumsum(weight) - weight
        share = max(1, int(np.maximum(self._sizes, 1).sum()) // cycle)
        chosen = (before < share) | (epoch - self.manifest.base[order] >= cycle)
        return tuple(sorted({*order[chosen].tolist(), *self._wasteful()}))

    def _wasteful(self) -> list[int]:
        """Returns the bins of mostly superseded files, once superseded images take more than the state itself."""
        total, live = sum(self._file_bytes.values()), int(np.maximum(self._images, self._sizes).sum())
        if total <= 2 * live + _FILE_BYTES:
            return []
        owned = self._owned().items()
        wasteful = [bins for file, bins in owned if 2 * self._images[bins].sum() < self._file_bytes.get(file, 0)]
        return [bin_ for bins in wasteful for bin_ in bins]

    def _owned(self) -> dict[SnapshotName, list[int]]:
        """Returns by snapshot file the bins whose image in it is their newest."""
        owned: dict[SnapshotName, list[int]] = {}
        for bin_ in range(len(self._sizes)):
            owned.setdefault(self.manifest.state_file(bin_), []).append(bin_)
        return owned

    def observe(self, done: FinishedEpoch) -> None:
        """Takes in a finished epoch: what changed, what was snapshotted, who holds what."""
        manifest, epoch = self.manifest, done.epoch
        self._changed[list(done.changed)] = epoch
        self._sizes = done.sizes.copy()
        self._log.append(done.log_bytes)
        for worker, (bins, size) in done.written.items():
            self._file_bytes[epoch, worker, done.generation] = size
            self._share(np.array(bins, np.intp), size)
        new = self._complete(done)
        fields = {name: getattr(manifest, name).copy() for name in _PLACES}
        fields["file_epoch"][new] = epoch
        fields["state_worker"][new] = done.location[new]
        fields["queue_worker"][new] = done.routing[new]
        fields["generation"][new] = done.generation
        base = manifest.base.copy()
        base[new] = epoch
        base[self._changed <= manifest.base] = epoch  # nothing to replay: the old image shows this epoch too
        self.manifest = replace(manifest, base=base, **fields)

    def _share(self, bins: NDArray[np.intp], size: int) -> None:
        """Shares a file's bytes out among its bins, by the bytes of their values."""
        weight = np.maximum(self._sizes[bins], 1)
        self._images[bins] = size * weight // int(weight.sum())

    def _complete(self, done: FinishedEpoch) -> NDArray[np.intp]:
        """Returns the bins whose location and routed worker have both written their part."""
        by_worker = {worker: set(bins) for worker, (bins, _) in done.written.items()}
        asked = sorted(set().union(*by_worker.values()))
        places = (done.location, done.routing)
        kept = [bin_ for bin_ in asked if all(bin_ in by_worker.get(int(at[bin_]), ()) for at in places)]
        return np.array(kept, np.intp)

    def adopt(self, files: Mapping[SnapshotName, int]) -> None:
        """Takes in the bytes of the snapshot files that are there."""
        self._file_bytes = dict(files)
        owned = self._owned()
        for file in owned.keys() & self._file_bytes.keys():
            self._share(np.array(owned[file], np.intp), self._file_bytes[file])

    def forget(self, files: Iterable[SnapshotName]) -> None:
        """Takes in that snapshot files were deleted."""
        for file in files:
            self._file_bytes.pop(file, None)


def needless_log(written: Manifest, names: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns those (epoch, worker) of frames that recovery from the written manifest never reads."""
    oldest = int(written.base.min())
    return [name for name in names if name[0] <= oldest]


def needless_snapshots(manifests: Iterable[Manifest], names: Iterable[SnapshotName]) -> list[SnapshotName]:
    """Returns those snapshot files that none of the manifests names."""
    used = set().union(*(manifest.files() for manifest in manifests))
    return [name for name in names if name not in used]
