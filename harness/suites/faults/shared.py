"""A file system of its own for what all hosts share, which can stop to answer, be slow, or be gone on a host."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.lab.processes import lives
from impls.errors import UsageError

__all__ = ["Shared"]

_SIZE_BYTES = 1 << 30  # of a sparse file
_FROZEN_S, _THAWED_S = 0.3, 0.05  # of a slow one
_DEADLINE_S = 30.0


class Shared:
    """An ext4 file system in a file beside its folder; `mounted` says whether that was permitted."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.ext4")
        self.mounted = False

    def mount(self) -> None:
        """Makes and mounts it if this user may; otherwise the folder is a folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(_SIZE_BYTES)
        made = _done("mkfs.ext4", "-q", "-F", "-O", "^has_journal", self._image)
        self.mounted = made and _done("mount", "-o", "loop", self._image, self.folder)

    def unmount(self) -> None:
        """Unmounts it, whoever still has files open on it."""
        if self.mounted:
            _done("umount", "-l", self.folder)
        self.mounted = False
        self._image.unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing can be written to it meanwhile: who tries waits."""
        self._freeze()
        try:
            yield
        finally:
            self._thaw()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Who writes to it meanwhile waits for a third of a second again and again."""
        end = threading.Event()

        def pump() -> None:
            while not end.wait(_THAWED_S):
                self._freeze()
                end.wait(_FROZEN_S)
                self._thaw()

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(_DEADLINE_S)

    @contextmanager
    def gone_on(self, pids: list[int]) -> Iterator[None]:
        """An empty folder that cannot be written stands in its place on the hosts of some processes meanwhile."""
        # By their own process namespace too: the /proc that is mounted there has no entry of this one.
        there = {pid: ("nsenter", f"--target={pid}", "--mount", "--pid", "--") for pid in pids}
        for enter in there.values():
            _must(*enter, "mount", "-t", "tmpfs", "-o", "ro,size=4k", "gone", self.folder)
        try:
            yield
        finally:
            for pid, enter in there.items():
                if lives(pid):
                    _must(*enter, "umount", "-l", self.folder)

    def _freeze(self) -> None:
        _must("fsfreeze", "--freeze", self.folder)

    def _thaw(self) -> None:
        _must("fsfreeze", "--unfreeze", self.folder)


def _must(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_DEADLINE_S)
    if done.returncode:
        raise UsageError(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")


def _done(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=_DEADLINE_S).returncode == 0
    except FileNotFoundError:
        return False
