"""The lock of an environment's one writer, with a deadline: LMDB's own waits for a stopped writer without end."""

import fcntl
import os
import time
from pathlib import Path
from typing import IO

from impls.errors import StateError

__all__ = ["holds", "take_lock"]

_LOCK_DEADLINE_S = 10.0
_LOCK_POLL_S = 0.02
_FILE = "writer"


def take_lock(path: Path) -> IO[bytes] | None:
    """Takes the writer's lock of an environment; None when another process has kept it for 10 seconds."""
    try:
        file = _opened(path / _FILE)
    except OSError as error:
        raise StateError(f"The state folder {path} cannot be written: {error.strerror}.") from error
    end = time.monotonic() + _LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                file.close()
                return None
            time.sleep(_LOCK_POLL_S)
            continue
        if holds(file, path):
            return file
        file.close()  # the folder was set aside while this attempt waited for it
        return take_lock(path)


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("ab")
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("ab")


def holds(file: IO[bytes], path: Path) -> bool:
    """Returns whether a lock taken is that of the environment which is at a path now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (path / _FILE).stat())
    except FileNotFoundError:
        return False
