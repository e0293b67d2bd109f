"""The lock of an environment's one writer, with a deadline: LMDB's own waits for a stopped writer without end."""

import fcntl
import os
import time
from pathlib import Path

from impls.errors import StateError

_LOCK_DEADLINE_S = 10.0
_LOCK_POLL_S = 0.02
_FILE = "writer"
_FOLDERS = 10  # folders of one path that may be set aside, one after another, while an attempt waits for their locks


class WriterLock:
    """A lock file that is open; closing it releases the lock.

    A file descriptor and not a file: every worker takes one in every epoch, and a file asks for size and position too.
    """

    __slots__ = ("fd",)

    def __init__(self, path: Path):
        """Opens the file, made if it is missing; raises OSError when it cannot be written."""
        self.fd = -1
        self.fd = _opened(path)

    def close(self) -> None:
        """Lets go of the lock; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


def take_lock(path: Path) -> WriterLock | None:
    """Takes the writer's lock of an environment; None when another process has kept it for 10 seconds.

    Raises StateError when the folder cannot be written, or is replaced by others again and again meanwhile.
    """
    for _ in range(_FOLDERS):
        try:
            lock = WriterLock(path)
        except OSError as error:
            raise StateError(f"The state folder {path} cannot be written: {error.strerror}.") from error
        if not _locked(lock):
            lock.close()
            return None
        if holds(lock, path):
            return lock
        lock.close()  # the folder was set aside while this attempt waited for it
    raise StateError(f"The state folder {path} was replaced {_FOLDERS} times by other attempts: this one gives up.")


def _locked(lock: WriterLock) -> bool:
    end = time.monotonic() + _LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(f"{path}/{_FILE}", flags, 0o666)
    except FileNotFoundError:
        path.mkdir(parents=True, exist_ok=True)
        return os.open(f"{path}/{_FILE}", flags, 0o666)


def holds(lock: WriterLock, path: Path) -> bool:
    """Returns whether a lock belongs to the environment that is at a path now."""
    try:
        return os.path.samestat(os.fstat(lock.fd), os.stat(f"{path}/{_FILE}"))  # noqa: PTH116 - a Path costs 10 µs more
    except FileNotFoundError:
        return False
