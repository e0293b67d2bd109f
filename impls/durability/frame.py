"""Changelog frames: what one worker changed in one commit; those of an epoch are a file, its *segment*.

In micro-batches an epoch has one commit, in real time as many as come. A frame is sealed, see
`impls.durability.sealed`: a JSON head, keyed entries, dense slots, results, a report, queued records.

A new file for every commit would cost 100 to 250 µs sixty times a second; an append costs 16 µs.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.closing import Closing
from impls.durability.files import Files, sync_path
from impls.durability.sealed import front_of, seal, unseal
from impls.errors import StateError
from impls.store.records import from_bytes, to_bytes

FOLDER = "log"
FORMAT = 3
_MAGIC = b"RSLG"


def frame_name(epoch: int, worker: int) -> str:
    """Returns the name of a worker's segment of an epoch, below the durable folder; names sort by epoch."""
    return f"{FOLDER}/{epoch:010d}-{worker:05d}"


@dataclass
class Frame:
    """One worker's changes of one commit; state values are those behind it, in stored form, the last one counts.

    Attributes:
        query, worker, epoch, generation: whose it is.
        fresh: the worker held nothing before this epoch; what it left behind in an earlier life counts no more.
        pulls: (bin, source) of the bins that came here with this commit.
        names, values: stored names and values of keyed entries written; a value of None deletes.
        codes, counts: int64, shape (n,): dense slots written, see `impls.store.entries`.
        queue: in order of execution, (bin, None) for a queue taken whole, (bin, records) for records added to it.
        commit: what the worker knows beside its bins behind the commit, see `impls.worker.environment`.
        results: the commit's results in stored form.
        report: the worker's whole report of the epoch, of the commit that ends it; b"" of another.
    """

    query: str
    worker: int
    epoch: int
    generation: int
    fresh: bool = False
    pulls: list[tuple[int, int]] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    codes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    queue: list[tuple[int, bytes | None]] = field(default_factory=list)
    commit: dict[str, Any] | None = None
    results: bytes = b""
    report: bytes = b""

    def bins(self) -> list[int]:
        """Returns the bins whose state or queue the frame changes or brings, ascending."""
        found = {bin_ for bin_, _ in self.pulls} | {bin_ for bin_, _ in self.queue}
        found |= {int.from_bytes(bin_, "big") for bin_ in {name[1:3] for name in self.names}}
        return sorted(found | set(np.unique(self.codes >> 40).tolist()))

    def encode(self) -> bytes:
        """Returns the frame as stored."""
        entries = b""
        if self.names:
            columns = {"name": self.names, "value": self.values}
            columns = {name: pa.array(column, pa.large_binary()) for name, column in columns.items()}
            entries = to_bytes(pa.table(columns))
        queue = [[bin_, records is None] for bin_, records in self.queue]
        head = {
            "query": self.query, "worker": self.worker, "epoch": self.epoch, "generation": self.generation,
            "fresh": self.fresh, "pulls": self.pulls, "queue": queue,
        }  # fmt: skip
        if self.commit is not None:
            head["commit"] = self.commit
        added = [self.results, self.report, *(records or b"" for _, records in self.queue)]
        slots = [self.codes.astype("<i8").tobytes(), self.counts.astype("<i8").tobytes()]
        return seal(_MAGIC, FORMAT, head, [entries, *slots, *added])

    @classmethod
    def decode(cls, raw: bytes, path: str) -> "Frame":
        """Reads what `encode` wrote; raises CorruptStateError that names the file."""
        head, (entries, codes, counts, results, report, *added) = unseal(_MAGIC, FORMAT, raw, path)
        frame = cls(head["query"], head["worker"], head["epoch"], head["generation"], head["fresh"])
        frame.pulls = [(bin_, source) for bin_, source in head["pulls"]]
        if len(entries):
            table = from_bytes(bytes(entries))
            frame.names, frame.values = table.column("name").to_pylist(), table.column("value").to_pylist()
        frame.commit, frame.results, frame.report = head.get("commit"), bytes(results), bytes(report)
        frame.codes, frame.counts = np.frombuffer(codes, "<i8"), np.frombuffer(counts, "<i8")
        frame.queue = [
            (bin_, None if taken else bytes(part)) for (bin_, taken), part in zip(head["queue"], added, strict=True)
        ]
        return frame


def frames_of(raw: bytes, path: str) -> tuple[list[Frame], int]:
    """Returns the whole frames of a segment and the bytes that they take; a torn one at its end is left out.

    Raises CorruptStateError that names the file for a frame that is damaged, or torn in front of others.
    """
    frames: list[Frame] = []
    at = 0
    while (front := front_of(raw, at)) is not None:
        end = at + front.size + front.length
        if end > len(raw) and raw[at : at + 4] == _MAGIC and not _has_frame(raw, at + 4):
            break
        frames.append(Frame.decode(raw[at:end], path))
        at = end
    return frames, at


def ends_epoch(frame: Frame) -> bool:
    """Returns whether a frame is the last one of its segment: the worker has ended the epoch with its commit."""
    return bool(frame.report)


def _has_frame(raw: bytes, start: int) -> bool:
    """Returns whether there is a whole frame from a byte on: then what is in front of it is damaged, and not torn."""
    while (at := raw.find(_MAGIC, start)) >= 0:
        start = at + 1
        if (front := front_of(raw, at)) is not None and front.matches(raw[at + front.size :][: front.length]):
            return True
    return False


def merged(frames: Sequence[Frame]) -> Frame:
    """Returns what one frame of all commits of an epoch would say, the frames given in their order."""
    if len(frames) == 1:
        return frames[0]
    last = frames[-1]
    return replace(
        last,
        fresh=any(frame.fresh for frame in frames),
        pulls=[pull for frame in frames for pull in frame.pulls],
        names=[name for frame in frames for name in frame.names],
        values=[value for frame in frames for value in frame.values],
        codes=np.concatenate([frame.codes for frame in frames]),
        counts=np.concatenate([frame.counts for frame in frames]),
        queue=[step for frame in frames for step in frame.queue],
    )


class Segment(Closing):
    """The open segment of a worker and epoch; a torn frame at its end, left by a process that died, is cut off.

    Raises StateError when it cannot be opened or is damaged.
    """

    def __init__(self, files: Files, epoch: int, worker: int):
        self._fsync, name = files.fsync, frame_name(epoch, worker)
        self.path = files.path(name)
        raw = files.read(name) or b""
        self.frames, whole = frames_of(raw, self.path)
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            if whole < len(raw):
                os.truncate(self._fd, whole)
            if files.fsync:
                sync_path(os.path.dirname(self.path))  # noqa: PTH120 - a Path costs more than the call
        except OSError as error:
            raise StateError(f"The changelog {self.path} cannot be opened: {error.strerror}.") from error

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._fd).st_size

    def append(self, raw: bytes) -> None:
        """Writes an encoded frame behind the others; raises StateError, and leaves the file as it was, if it cannot."""
        end = self.size
        try:
            _write(self._fd, raw)
            if self._fsync:
                os.fsync(self._fd)
        except OSError as error:
            os.truncate(self._fd, end)
            raise StateError(f"The changelog {self.path} cannot be written: {error.strerror}.") from error

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write(fd: int, raw: bytes) -> None:
    left = memoryview(raw)
    while left:  # a call writes 2 GiB at most
        written = os.write(fd, left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]


def fence(files: Files, worker: int, epochs: Iterable[int]) -> None:
    """Makes a worker's segments anew, so that a process which has one open still writes into nothing.

    For whoever has taken over its environment: a process that stalls between its last look and its write cannot know.
    """
    for epoch in epochs:
        name = frame_name(epoch, worker)
        if (raw := files.read(name)) is not None:
            files.write(name, raw)


def frames_in(files: Files, worker: int, epoch: int) -> list[Frame]:
    """Returns the whole frames of a worker's segment, none where there is no segment.

    Raises CorruptStateError that names the file when one is damaged.
    """
    name = frame_name(epoch, worker)
    return frames_of(files.read(name) or b"", files.path(name))[0]
