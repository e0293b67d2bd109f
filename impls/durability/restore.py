"""Restoring bins to the end of an epoch: their snapshots, and the changelog walked back through their owners.

SEEP's restore and partition (Castro Fernandez et al., SIGMOD 2013, section 3): recovery of a worker, pulls from a
worker of another host and restarts with another number of workers all come here.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.durability import frame as frames
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.schedule import Manifest, SnapshotName
from impls.durability.source import RestoreSource
from impls.errors import ADVICE, CorruptStateError, StateError
from impls.faults import fault
from impls.store.bins import read_size, write_size
from impls.store.checked import check_absent
from impls.store.records import put_queued, take_queues
from impls.store.state import BinState

_UNSEEN = f"mount the checkpoint's file system on this host, or {ADVICE}"


@dataclass
class _Walk:
    """What the frames say, newest first: the changes of the requested bins, and the queue operations of one worker.

    Bins are `emptied` whose queue at the worker began anew behind their snapshot, as the worker held nothing then.
    """

    names: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)
    queue: list[tuple[int, bytes | None]] = field(default_factory=list)
    emptied: set[int] = field(default_factory=set)

    def take(self, frame: frames.Frame, wanted: NDArray[np.bool_]) -> None:
        """Takes over a frame's changes of the requested bins, bool of shape (B,)."""
        if frame.names:
            own = [wanted[int.from_bytes(name[1:3], "big")] for name in frame.names]
            self.names += [n for n, mine in zip(reversed(frame.names), reversed(own), strict=True) if mine]
            self.values += [v for v, mine in zip(reversed(frame.values), reversed(own), strict=True) if mine]
        if len(frame.codes):
            mine = wanted[frame.codes >> 40]
            self.codes.append(frame.codes[mine][::-1])
            self.counts.append(frame.counts[mine][::-1])

    def with_images(self, queues: Iterable[int]) -> tuple[int, ...]:
        """Returns those of bins whose queue goes on from that of their snapshot."""
        return tuple(bin_ for bin_ in queues if bin_ not in self.emptied)

    def newest(self) -> tuple[list[bytes], list[bytes | None], NDArray[np.int64], NDArray[np.int64]]:
        """Returns every entry and slot once, with its newest value."""
        entries: dict[bytes, bytes | None] = {}
        for name, value in zip(self.names, self.values, strict=True):
            entries.setdefault(name, value)
        codes = np.concatenate([*self.codes, np.empty(0, np.int64)])
        counts = np.concatenate([*self.counts, np.empty(0, np.int64)])
        distinct, first = np.unique(codes, return_index=True)
        return list(entries), list(entries.values()), distinct, counts[first]


def no_progress() -> None:
    """Stands for a function that takes in that a step is done, where nobody waits for it."""


@dataclass(frozen=True)
class RestoreRequest:
    """What to restore as of the end of an epoch.

    Attributes:
        states: bin -> worker that held its state then.
        queues: bins whose queue is restored too, as `worker` held it.
        worker: the worker that held the queues.
        have: bin -> epoch whose end the transaction shows the bin's state at already; only later changes are written.
        open_from: an epoch that is under way: its files and later ones may be missing.
        progress: called behind each file that was read, and each bin that was written.
        past: snapshots may be of later epochs that show this one too, as nobody goes on from what is restored.
    """

    states: Mapping[int, int]
    queues: tuple[int, ...] = ()
    worker: int = -1
    have: Mapping[int, int] = field(default_factory=dict)
    open_from: int = 1 << 62
    progress: Callable[[], None] = no_progress
    past: bool = False


@dataclass(frozen=True)
class Restored:
    """What a restoration wrote.

    Attributes:
        sizes: (bin, bytes of its state) of the requested bins.
        image_bytes: bytes of state that came from snapshots, or was created.
        delta_bytes: bytes of the changes after them.
    """

    sizes: list[tuple[int, int]]
    image_bytes: int
    delta_bytes: int


def restore(source: RestoreSource, txn: lmdb.Transaction, epoch: int, request: RestoreRequest) -> Restored:
    """Writes bins into a transaction as they were at the end of an epoch.

    The environment must not hold the bins, those in `request.have` excepted. Raises StateError when a frame, a snapshot
    or the manifest is missing or damaged; the message names the file. Raises CorruptStateError when the environment is
    damaged where the bins are to come.
    """
    with _of_checkpoint():
        manifest = source.manifest()
        manifest = manifest.as_of(epoch) if request.past else manifest
        _check_not_ahead(source, manifest, epoch, request)
        walk = _walk(source, manifest, epoch, request)
    state = BinState(txn, source.bins)
    _load_snapshots(source, manifest, state, txn, replace(request, queues=walk.with_images(request.queues)))
    state.write_sizes()
    image_bytes = sum(read_size(txn, bin_)[1] for bin_ in set(request.states) - set(request.have))
    fault("during-recovery", query=source.query, worker=request.worker, epoch=epoch + 1)
    names, values, codes, counts = walk.newest()
    _check_new(txn, names, request.have)
    state.redo(names, values, codes, counts)
    for bin_, stored in reversed(walk.queue):
        if stored is None:
            take_queues(txn, [bin_])
        else:
            put_queued(txn, bin_, stored)
    state.write_sizes()
    delta = sum(map(len, names)) + sum(len(value or b"") for value in values) + codes.nbytes + counts.nbytes
    return Restored([(bin_, read_size(txn, bin_)[1]) for bin_ in request.states], image_bytes, delta)


@contextmanager
def _of_checkpoint() -> Iterator[None]:
    """Lets damage of a file be none of the environment, which can be rebuilt."""
    try:
        yield
    except CorruptStateError as error:
        raise StateError(str(error)) from error


def _check_new(txn: lmdb.Transaction, names: Iterable[bytes], bins: Collection[int]) -> None:
    """Raises CorruptStateError when an item is damaged beside the place of a new one of bins that are here already."""
    known = (name for name in names if int.from_bytes(name[1:3], "big") in bins)
    check_absent(txn, [name for name in known if txn.get(name) is None])


def _shown(manifest: Manifest, request: RestoreRequest) -> NDArray[np.int64]:
    """Returns the epoch whose end each bin's state shows before the changes, shape (B,); queues are as in snapshots."""
    shown = manifest.base.copy()
    shown[list(request.have)] = list(request.have.values())
    return shown


def _check_not_ahead(source: RestoreSource, manifest: Manifest, epoch: int, request: RestoreRequest) -> None:
    of_states = _shown(manifest, request)[list(request.states)].max(initial=-1)
    newest = int(max(of_states, manifest.base[list(request.queues)].max(initial=-1)))
    if newest > epoch:
        raise StateError(
            f"The snapshots in {source.files.place} are of epoch {newest}, ahead of the epoch {epoch} asked for: this "
            "attempt is outdated."
        )


def _walk(source: RestoreSource, manifest: Manifest, epoch: int, request: RestoreRequest) -> _Walk:
    """Reads frames from `epoch` back to the snapshots, following each bin to the worker it was pulled from."""
    walk, shown = _Walk(), _shown(manifest, request)
    queued = np.zeros(source.bins, bool)
    queued[list(request.queues)] = True
    at: dict[int, NDArray[np.bool_]] = defaultdict(lambda: np.zeros(source.bins, bool))
    for bin_, owner in request.states.items():
        at[owner][bin_] = True
    for number in range(epoch, -1, -1):
        open_ = shown < number
        queues = queued & (manifest.base < number)
        states = {owner: bins & open_ for owner, bins in at.items() if (bins & open_).any()}
        readers = {*states, request.worker} if queues.any() else {*states}
        if not readers:
            break
        missing = number >= request.open_from
        read = {owner: _read_frame(source, number, owner, missing=missing) for owner in sorted(readers)}
        request.progress()
        for owner, frame in read.items():
            if owner in states:
                walk.take(frame, states[owner])
            if owner == request.worker:
                walk.queue += [op for op in reversed(frame.queue) if queues[op[0]]]
                if frame.fresh:
                    walk.emptied |= set(np.flatnonzero(queues).tolist())
                    queued[:] = False
        came: dict[int, NDArray[np.bool_]] = defaultdict(lambda: np.zeros(source.bins, bool))
        for owner, frame in read.items():
            for bin_, before in frame.pulls:
                if at[owner][bin_]:
                    at[owner][bin_], at[before][bin_] = False, True
                    came[before][bin_] = open_[bin_]
        _take_of_old_owners(source, walk, number, came, missing=missing)
    return walk


def _take_of_old_owners(
    source: RestoreSource, walk: _Walk, epoch: int, came: Mapping[int, NDArray[np.bool_]], *, missing: bool
) -> None:
    """Takes what old owners have changed in the epoch that moved their bins, as they do in real time."""
    for owner, bins in came.items():
        if bins.any():
            walk.take(_read_frame(source, epoch, owner, missing=missing), bins)


def _read(files: Files, name: str, kind: str) -> tuple[str, bytes]:
    """Returns a file's whole path and content; raises CorruptStateError that names it when it is missing."""
    path, raw = files.path(name), files.read(name)
    if raw is None:
        if not files.names(name.rpartition("/")[0]):
            raise CorruptStateError(f"The {kind} file {path} is missing, and no other is there: {_UNSEEN}.")
        raise CorruptStateError(f"The {kind} file {path} is missing: {ADVICE}.")
    return path, raw


def _read_frame(source: RestoreSource, epoch: int, worker: int, *, missing: bool = False) -> frames.Frame:
    """Returns a worker's changes of an epoch; none where its file may be `missing` and is."""
    name = frames.frame_name(epoch, worker)
    raw = source.files.read(name) if missing else None
    if missing and raw is None:
        return frames.Frame(source.query, worker, epoch, 0)
    path = source.files.path(name)
    raw = _read(source.files, name, "changelog")[1] if raw is None else raw
    found, _ = frames.frames_of(raw, path)
    if not missing and not (found and frames.ends_epoch(found[-1])):  # a torn end is no crash's any more
        raise CorruptStateError(f"The changelog file {path} is cut off: {ADVICE}.")
    frame = frames.merged(found) if found else frames.Frame(source.query, worker, epoch, 0)
    if (frame.query, frame.worker, frame.epoch) != (source.query, worker, epoch):
        raise CorruptStateError(f"The changelog file {path} belongs to another query, worker or epoch.")
    return frame


def _load_snapshots(
    source: RestoreSource, manifest: Manifest, state: BinState, txn: lmdb.Transaction, request: RestoreRequest
) -> None:
    """Writes the requested bins' snapshots, one file in memory at a time.

    Bins without a snapshot are created as the operator creates them.
    """
    by_file: dict[SnapshotName, list[tuple[int, bool]]] = defaultdict(list)
    for bin_ in sorted(set(request.states) - set(request.have)):
        if manifest.file_epoch[bin_] < 0:
            write_size(txn, bin_, 0, 0)  # also of one that stays empty: a reader sees by it that the bin has come
            source.operator.create(bin_, source.bins, state)
            request.progress()
        else:
            by_file[manifest.state_file(bin_)].append((bin_, True))
    for bin_ in request.queues:
        # an image of another worker's queue is older than the routing: the queue was empty when the bin came here
        if manifest.file_epoch[bin_] >= 0 and manifest.queue_worker[bin_] == request.worker:
            by_file[manifest.queue_file(bin_)].append((bin_, False))
    for file, bins in by_file.items():
        with _of_checkpoint():
            images = _read_snapshot(source, *file)
        for bin_, is_state in bins:
            if bin_ not in images:
                path = source.files.path(snapshots.snapshot_name(*file))
                raise StateError(f"The snapshot file {path} lacks bin {bin_}, which the manifest says is in it.")
            (snapshots.install if is_state else snapshots.install_queue)(txn, images[bin_])
            request.progress()


def _read_snapshot(source: RestoreSource, epoch: int, worker: int, generation: int) -> dict[int, snapshots.BinImage]:
    path, raw = _read(source.files, snapshots.snapshot_name(epoch, worker, generation), "snapshot")
    query, images = snapshots.decode(raw, path)
    if query != source.query:
        raise CorruptStateError(f"The snapshot file {path} belongs to another query.")
    return images
