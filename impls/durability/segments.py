"""Segments: a worker's changelog of one epoch in real-time mode, one frame appended for every turn.

A new file for every turn, as epochs have it, would cost 100 to 250 µs sixty times a second; an append costs 16 µs.
"""

import errno
import os
from types import TracebackType

from impls.durability.files import Files, sync_path
from impls.durability.frame import Frame, frame_name, frames_of
from impls.errors import StateError

__all__ = ["Segment", "frames_in", "last_frame"]


class Segment:
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

    def __enter__(self) -> "Segment":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _write(fd: int, raw: bytes) -> None:
    if os.write(fd, raw) != len(raw):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def frames_in(files: Files, worker: int, epoch: int) -> list[Frame]:
    """Returns the whole frames of a worker's segment, none where there is no segment.

    Raises CorruptStateError that names the file when one is damaged.
    """
    name = frame_name(epoch, worker)
    return frames_of(files.read(name) or b"", files.path(name))[0]


def last_frame(files: Files, worker: int, epoch: int) -> Frame | None:
    """Returns the newest whole frame of a worker among the segments of `epoch` - 1 to `epoch` + 1, None without one.

    Raises CorruptStateError that names the file when one is damaged.
    """
    for number in (epoch + 1, epoch, epoch - 1):
        if found := frames_in(files, worker, number):
            return found[-1]
    return None
