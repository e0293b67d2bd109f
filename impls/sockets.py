"""Unix sockets: folders for them that are short and private, accepting connections while descriptors run out.

And how many descriptors a process may have.
"""

import contextlib
import errno
import logging
import os
import resource
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from impls.closing import Closing
from impls.errors import StateError

FILES_MIN = 1_024  # that a process with Spark, or a broker, has open at a time
_FINITE = (1 << 20, 1 << 16, 10_240, 4_096)
ADDRESS_BYTES = 103  # of a socket's path: 107 on Linux, 103 on macOS
_PREFIX = "rescale-"
_RANDOM_BYTES = 8  # that mkdtemp puts behind the prefix
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")
_LOG = logging.getLogger(__name__)


def raise_file_limit() -> int:
    """Lets this process, and those that it starts, open as many files as they may, and returns how many these are."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for tried in (most, *(_FINITE if most == resource.RLIM_INFINITY else ())):  # none may be more than the system takes
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (tried, most))
            now = tried
            break
    return sys.maxsize if now == resource.RLIM_INFINITY else now


class SocketFolder(Closing):
    """A new folder of unguessable name that only this user can enter, in which sockets have short paths.

    A socket in it never exists with other rights, whoever is about to connect.

    Args:
        name_bytes: of the longest name that a socket in it gets.
        first: folders that are tried before the temporary one and the system's.

    Raises:
        StateError: none of them is short enough and can be written.

    Attributes:
        path: of the folder, until `close`.
    """

    def __init__(self, name_bytes: int, first: Iterable[Path] = ()):
        made = next(filter(None, (_made(place, name_bytes) for place in (*map(str, first), *_parents()))), None)
        if made is None:
            most = ADDRESS_BYTES - name_bytes - len(_PREFIX) - _RANDOM_BYTES - 2
            raise StateError(f"No folder can have sockets: set TMPDIR to one whose path has at most {most} bytes.")
        self.path = made

    def close(self) -> None:
        """Deletes the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _parents() -> Iterable[str]:
    return (tempfile.gettempdir(), *_SHORT)


def _made(parent: str, name_bytes: int) -> Path | None:
    length = len(os.fsencode(os.path.abspath(parent))) + 1 + len(_PREFIX) + _RANDOM_BYTES + 1 + name_bytes  # noqa: PTH100
    if length > ADDRESS_BYTES:
        return None
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).absolute()
    except OSError:
        return None


def left_folders(parent: Path) -> list[Path]:
    """Returns the socket folders in a folder."""
    return sorted(parent.glob(f"{_PREFIX}*"))


def delete_left_folder(folder: Path) -> None:
    """Deletes the socket folder of a killed process; anything that is none of this user's stays."""
    with contextlib.suppress(OSError):
        found = folder.lstat()
        private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
        if folder.name.startswith(_PREFIX) and private and found.st_uid == os.getuid():
            for left in folder.iterdir():
                left.unlink()
            folder.rmdir()


_FIRST_S, _MOST_S = 0.05, 1.0
_GONE = {errno.EBADF, errno.EINVAL}  # the socket itself has been closed


class AcceptFailures:
    """What a thread does that accepts connections when that fails: it waits, a second at most, and says so once.

    Args:
        what: who accepts, for the log.
        closed: set when the thread is to end.
    """

    def __init__(self, what: str, closed: threading.Event):
        self._what, self._closed = what, closed
        self._wait_s = 0.0

    def accepted(self) -> None:
        """Takes in that a connection came."""
        if self._wait_s:
            _LOG.warning("The %s takes connections again.", self._what)
        self._wait_s = 0.0

    def goes_on(self, error: OSError) -> bool:
        """Waits before the next try, and returns whether one can succeed: the socket has not been closed."""
        if self._closed.is_set():
            return False
        gone = error.errno in _GONE
        if gone or not self._wait_s:
            then = "ends" if gone else "tries again"
            _LOG.error("The %s cannot take a connection and %s: %s.", self._what, then, error.strerror or error)
        self._wait_s = min(max(2 * self._wait_s, _FIRST_S), _MOST_S)
        return not (gone or self._closed.wait(self._wait_s))
