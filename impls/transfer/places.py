"""The files by which the tasks of a host find its server, and by which there is one only.

In the host's state folder, readable to its user only, without secrets: a lock that the server holds as long as it
lives, and what it tells of itself.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Any

from impls.protocol.jsontext import from_text, to_text

_AGAIN_S = 3.0  # between two starts of a server; twice as long after each that did not come up
_AGAIN_MAX_S = 300.0
_UNUSED_MAX_S = 86_400.0
_NOTE_BYTES = 48


class Places:
    """The files of one query and generation in a host's state folder."""

    def __init__(self, state_dir: Path, query: str, generation: int):
        self._folder, self._generation = state_dir, generation
        self._stem = f".transfer-{hashlib.sha256(query.encode()).hexdigest()[:12]}-"
        self.lock = self._path(generation, "lock")
        self.told = self._path(generation, "json")
        self.log = self._path(generation, "log")

    def _path(self, generation: int, kind: str) -> Path:
        return self._folder / f"{self._stem}{generation}.{kind}"

    def take(self) -> int | None:
        """Returns the descriptor of the lock, taken; None while a server has it, or until it is time to start another.

        What a server that has ended told of itself is forgotten. Those that never came up are tried ever more rarely.
        """
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.utime(fd)  # somebody needs it
            os.close(fd)
            return None
        self.told.unlink(missing_ok=True)
        last, tries, _ = self._noted(fd)
        if 0 <= time.monotonic() - last < min(_AGAIN_S * 2**tries, _AGAIN_MAX_S):
            os.close(fd)
            return None
        found = os.fstat(fd)
        unused_s = min((time.time_ns() - found.st_mtime_ns) / 1e9, _UNUSED_MAX_S) if found.st_size else 0.0
        self._note(fd, tries + 1, unused_s)
        return fd

    def came_up(self) -> float:
        """Notes that the server listens, and returns for how many seconds nobody needed one before it was started."""
        fd = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        *_, unused_s = self._noted(fd)
        self._note(fd, 0, unused_s)
        os.close(fd)
        return unused_s

    def used(self) -> int:
        """Returns a number that changes whenever a task asks for the server."""
        return self.lock.stat().st_mtime_ns

    @staticmethod
    def _noted(fd: int) -> tuple[float, int, float]:
        last, tries, unused_s = (os.pread(fd, _NOTE_BYTES, 0).decode().split() or ("-inf", "0", "0"))[:3]
        return float(last), int(tries), float(unused_s)

    @staticmethod
    def _note(fd: int, tries: int, unused_s: float) -> None:
        os.pwrite(fd, f"{time.monotonic():.3f} {tries} {unused_s:.3f}".ljust(_NOTE_BYTES).encode(), 0)

    def last_words(self) -> str:
        """Returns the last line of the log, "" for none."""
        try:
            return next(reversed(self.log.read_text(errors="replace").strip().splitlines()), "")
        except OSError:
            return ""

    def tell(self, what: dict[str, Any]) -> None:
        """Replaces what the server tells of itself."""
        part = self.told.with_suffix(".part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, to_text(what))
        finally:
            os.close(fd)
        part.rename(self.told)

    def read(self) -> dict[str, Any]:
        """Returns what the server tells of itself, nothing before it does."""
        try:
            found: dict[str, Any] = from_text(self.told.read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    def is_replaced(self) -> bool:
        """Returns whether a server of a later generation was started here, or the folder is gone."""
        return not self.lock.exists() or max(self._generations(), default=self._generation) > self._generation

    def forget_earlier(self) -> None:
        """Deletes the files of earlier generations."""
        for generation in self._generations():
            if generation < self._generation:
                for kind in ("lock", "json", "log"):
                    with contextlib.suppress(OSError):
                        self._path(generation, kind).unlink(missing_ok=True)

    def _generations(self) -> list[int]:
        names = [path.stem.removeprefix(self._stem) for path in self._folder.glob(f"{self._stem}*.lock")]
        return [int(name) for name in names if name.isdigit()]
