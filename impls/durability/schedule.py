"""Snapshots of bins: which are due, where the newest are (the manifest), which files are no longer needed."""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.durability.files import Files
from impls.errors import ADVICE, UsageError
from impls.protocol.arrays import array_of, text_of

NAME = "manifest.json"
FORMAT = 1
SnapshotName = tuple[int, int, int]
_ARRAYS = ("base", "file_epoch", "state_worker", "queue_worker", "generation")


@dataclass(frozen=True)
class Manifest:
    """Arrays have one int64 per bin, shape (B,).

    Attributes:
        query: identity of the query.
        base: epoch whose end the bin's snapshot shows, -1 for the state that the operator creates.
        file_epoch: epoch in the snapshot files' names, -1 for none; below `base` when nothing has changed since.
        generation: of the driver that had the snapshot made, the last part of the files' names.
        state_worker, queue_worker: workers in the names of the files with state and queue; the same for a bin at rest.
    """

    query: str
    base: NDArray[np.int64]
    file_epoch: NDArray[np.int64]
    state_worker: NDArray[np.int64]
    queue_worker: NDArray[np.int64]
    generation: NDArray[np.int64]

    @classmethod
    def new(cls, query: str, bins: int) -> "Manifest":
        """Returns the manifest of a query without snapshots."""
        return cls(query, *(np.full(bins, -1, np.int64) for _ in _ARRAYS))

    def to_json(self) -> dict[str, str]:
        """Returns the arrays as text."""
        return {name: text_of(getattr(self, name), "<i8") for name in _ARRAYS}

    @classmethod
    def of_json(cls, query: str, data: Mapping[str, str]) -> "Manifest":
        """Returns what `to_json` has written; raises KeyError or ValueError for anything else."""
        return cls(query, *(array_of(data[name], "<i8") for name in _ARRAYS))

    def state_file(self, bin_: int) -> SnapshotName:
        """Returns the name of the file with a bin's state."""
        return int(self.file_epoch[bin_]), int(self.state_worker[bin_]), int(self.generation[bin_])

    def queue_file(self, bin_: int) -> SnapshotName:
        """Returns the name of the file with a bin's queue."""
        return int(self.file_epoch[bin_]), int(self.queue_worker[bin_]), int(self.generation[bin_])

    def as_of(self, epoch: int) -> "Manifest":
        """Returns it with snapshots that show an epoch: no bin has changed between its file's epoch and its base."""
        shows = (self.file_epoch <= epoch) & (self.base > epoch)
        return replace(self, base=np.where(shows, epoch, self.base))

    def files(self) -> set[SnapshotName]:
        """Returns the names of every snapshot file in use."""
        used = np.flatnonzero(self.file_epoch >= 0).tolist()
        return {name for bin_ in used for name in (self.state_file(bin_), self.queue_file(bin_))}


def write_manifest(files: Files, manifest: Manifest, newest: Manifest | None = None) -> None:
    """Replaces the manifest; `newest` has the snapshots of an epoch that may be run again, for the next driver."""
    data = {"format": FORMAT, "query": manifest.query, **manifest.to_json()}
    if newest is not None:
        data["newest"] = newest.to_json()
    files.write(NAME, json.dumps(data).encode())


def read_manifest(files: Files, query: str, bins: int) -> Manifest:
    """Returns the manifest, or that of a query without snapshots when there is none yet.

    Raises UsageError that names the file when it is unreadable, of another format or of another query.
    """
    return read_manifests(files, query, bins)[0]


def read_manifests(files: Files, query: str, bins: int) -> tuple[Manifest, Manifest]:
    """Returns the manifest and the newest one that was written with it, see `read_manifest`."""
    raw = files.read(NAME)
    if raw is None:
        return Manifest.new(query, bins), Manifest.new(query, bins)
    path = files.path(NAME)
    try:
        data: dict[str, Any] = json.loads(raw)
        version, owner = data["format"], data["query"]
        found = [Manifest.of_json(query, of) for of in (data, data.get("newest", data))]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The manifest {path} is damaged: {ADVICE}.") from error
    if version != FORMAT:
        raise UsageError(f"The manifest {path} has format {version}; this version reads format {FORMAT}.")
    if owner != query or any(len(getattr(manifest, name)) != bins for manifest in found for name in _ARRAYS):
        raise UsageError(f"The manifest {path} belongs to another query: use this query's own checkpoint folder.")
    return found[0], found[1]


REPLAY_EPOCHS = 300
_MANIFEST_EPOCHS = 10
_PLACES = ("file_epoch", "state_worker", "queue_worker", "generation")
_LOG_BYTES = 32 << 20  # of changelog that is always allowed; above it, half of the state's size is
_FILE_BYTES = 16 << 20  # of superseded images that is always allowed
_SHARE_BYTES = 1 << 20  # of images that an epoch may always write: a larger state takes more epochs
_WORKER_BYTES = 64 << 20  # of images that a worker writes in an epoch at most, or one bin: all are in memory at once
_LOG_FILES = 100_000  # of changelog in a cycle


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
    `replay_epochs` allows, longer where an epoch would write more than a mebibyte, shorter where the changelog grows
    faster than the state is large, or there would be too many files of it. A bin larger than an epoch's share takes
    those of the epochs behind it too. A bin that has not changed since its snapshot costs nothing. What a worker writes
    in an epoch is bounded in any case.

    Args:
        manifest: the snapshots that there are.
        epoch: the last epoch observed, -1 before the first.
        sizes: int64, shape (B,): bytes of the bins' state then.
        location: int32, shape (B,): their workers then.
        replay_epochs: number of epochs that a recovery may replay.
        begins_own: bins begin with state that is in no file, so that each is snapshotted as soon as it can be.
    """

    def __init__(
        self,
        manifest: Manifest,
        *,
        epoch: int,
        sizes: NDArray[np.int64],
        location: NDArray[np.int32],
        replay_epochs: int = REPLAY_EPOCHS,
        begins_own: bool = False,
    ):
        self._begins_own = begins_own
        self.manifest = replace(manifest, base=manifest.base.copy())
        self._replay = replay_epochs
        bins = len(manifest.base)
        self._changed = np.full(bins, epoch, np.int64)  # what changed before a driver's start is not known any more
        self._sizes, self._location = sizes.copy(), location.copy()
        self._images = np.zeros(bins, np.int64)  # bytes of each bin's newest image: more than its values' alone
        self._debt = 0  # bytes of the next epochs' images that are written already
        self._log: deque[int] = deque(maxlen=replay_epochs)
        self._file_bytes: dict[SnapshotName, int] = {}

    @property
    def manifest_epochs(self) -> int:
        """Number of epochs between two manifests."""
        return max(1, min(_MANIFEST_EPOCHS, self._replay // 10))

    @property
    def unknown(self) -> NDArray[np.intp]:
        """The bins with which nobody but the operator knows how to begin."""
        return np.flatnonzero(self.manifest.file_epoch < 0) if self._begins_own else np.empty(0, np.intp)

    def cycle(self) -> int:
        """Returns the number of epochs in which every bin is snapshotted once."""
        total = int(self._sizes.sum())
        longest = max(1, self._replay - 2 * self.manifest_epochs, total // _SHARE_BYTES)
        longest = min(longest, max(1, _LOG_FILES // len(np.unique(self._location))))
        budget = _LOG_BYTES + total // 2
        growth = sum(self._log) / max(1, len(self._log))
        return longest if growth * longest <= budget else max(1, int(budget / growth))

    def _share(self) -> int:
        """Returns the bytes of an epoch's images if every bin is to have one in a cycle."""
        return max(1, int(np.maximum(self._sizes, 1).sum()) // self.cycle())

    def to_snapshot(self, epoch: int) -> tuple[int, ...]:
        """Returns the bins to snapshot at the end of an epoch, ascending."""
        unknown, stale = self.unknown.tolist(), np.flatnonzero(self._changed > self.manifest.base)
        if not len(stale):
            return self._bounded(unknown)
        cycle = self.cycle()
        order = stale[np.argsort(self.manifest.base[stale], kind="stable")]
        weight = np.maximum(self._sizes[order], 1)
        before = np.cumsum(weight) - weight
        share = 0 if self._debt else self._share()
        chosen = (before < share) | (epoch - self.manifest.base[order] >= cycle)
        return self._bounded([*unknown, *order[chosen].tolist(), *self._wasteful()])

    def _bounded(self, bins: Sequence[int]) -> tuple[int, ...]:
        """Returns, ascending, those of bins in order of their urgency that their workers may write in one epoch."""
        bytes_, chosen = np.maximum(self._images, self._sizes), list[int]()
        left: dict[int, int] = {}
        for bin_ in dict.fromkeys(bins):
            worker, size = int(self._location[bin_]), int(bytes_[bin_])
            if worker not in left or size <= left[worker]:
                chosen.append(bin_)
                left[worker] = left.get(worker, _WORKER_BYTES) - size
        return tuple(sorted(chosen))

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
        self._sizes, self._location = done.sizes.copy(), done.location.copy()
        self._log.append(done.log_bytes)
        for worker, (bins, size) in done.written.items():
            self._file_bytes[epoch, worker, done.generation] = size
            self._divide(np.array(bins, np.intp), size)
        self._settle({bin_ for bins, _ in done.written.values() for bin_ in bins})
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

    def _settle(self, written: set[int]) -> None:
        """Counts the bytes of the bins that were written, up to those of the largest one, for the epochs to come."""
        above = int(self._sizes[sorted(written)].sum()) - max(self._share(), _SHARE_BYTES)
        self._debt = min(max(self._debt + above, 0), int(self._sizes.max(initial=0)))

    def _divide(self, bins: NDArray[np.intp], size: int) -> None:
        """Divides a file's bytes among its bins, by the bytes of their values."""
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
            self._divide(np.array(owned[file], np.intp), self._file_bytes[file])

    def forget(self, files: Iterable[SnapshotName]) -> None:
        """Takes in that snapshot files were deleted."""
        for file in files:
            self._file_bytes.pop(file, None)


def needless_snapshots(manifests: Iterable[Manifest], names: Iterable[SnapshotName]) -> list[SnapshotName]:
    """Returns those snapshot files that none of the manifests names."""
    used = set().union(*(manifest.files() for manifest in manifests))
    return [name for name in names if name not in used]
