"""Damage to files and disks, and its repair."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from impls.durability.files import Files
from impls.durability.frame import frame_name
from impls.durability.schedule import read_manifest
from impls.durability.snapshot import snapshot_name
from impls.errors import StateError

_DISK_BYTES = 24 << 20
_REMOUNT_DEADLINE_S = 20.0
_COMMAND_DEADLINE_S = 30.0
_POLL_S = 0.005
_CHUNK = 1 << 16


def lose(folder: Path) -> None:
    """Deletes a folder at once: whoever looks for it finds the whole of it or nothing."""
    gone = folder.with_name(f".{folder.name}-lost")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def truncate(file: Path, draw: int) -> None:
    """Cuts a file off somewhere."""
    os.truncate(file, draw % max(1, file.stat().st_size))


def flip_bit(file: Path, draw: int) -> None:
    """Flips one bit of a file somewhere."""
    at, bit = divmod(draw % (8 * file.stat().st_size), 8)
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ (1 << bit)]))


def newest_frame(durable: Path, worker: int) -> Path:
    """Returns the newest changelog frame of a worker; raises StateError when there is none."""
    found = sorted(durable.glob(frame_name(0, worker).replace("0" * 10, "*", 1)))
    if not found:
        raise StateError(f"Worker {worker} has no changelog frame in {durable}.")
    return found[-1]


def snapshot_in_use(durable: Path, query: str, bins: int, draw: int) -> Path | None:
    """Returns a snapshot file that the manifest names, None while it names none."""
    manifest = read_manifest(Files(str(durable)), query, bins)
    used = np.flatnonzero(manifest.file_epoch >= 0)
    if not len(used):
        return None
    bin_ = int(used[draw % len(used)])
    return durable / snapshot_name(*manifest.state_file(bin_))


def holds_deleted(pids: list[int], folder: Path) -> bool:
    """Returns whether a process has a deleted file of a folder open, whose space is not free then (Linux)."""
    paths = (path for pid in pids for path in _open_files(pid))
    return any(path.startswith(f"{folder}/") and path.endswith(" (deleted)") for path in paths)


def _open_files(pid: int) -> list[str]:
    """Returns what a process has open, as the kernel names it; nothing of one that has ended (Linux)."""
    found = []
    with contextlib.suppress(OSError):  # it has ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed
                found.append(str(descriptor.readlink()))
    return found


def limit_files(pids: list[int], size: int) -> None:
    """Lets processes write no file beyond `size` bytes (Linux)."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


class Disk:
    """A small disk in memory, mounted where the workers' state goes; `mounted` says whether that was permitted."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._ballast = folder / "ballast"
        self.mounted = False

    def mount(self) -> None:
        """Mounts the disk if this user may."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = f"size={_DISK_BYTES},mode=700"
        self.mounted = sys.platform == "linux" and succeeds("mount", "-t", "tmpfs", "-o", options, "none", self.folder)

    def unmount(self) -> None:
        """Unmounts the disk, whoever still has files open on it."""
        if self.mounted:
            succeeds("umount", "-l", self.folder)
        self.mounted = False

    def fill(self) -> None:
        """Writes until nothing more fits; again whenever something was freed."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (_CHUNK, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self) -> None:
        """Takes away what `fill` wrote."""
        self._ballast.unlink(missing_ok=True)

    def forbid_writing(self, pause: Callable[[], None]) -> None:
        """Makes the disk read-only at a moment when no file on it is open for writing.

        Raises StateError when there is no such moment within 20 s.
        """
        if not self.mounted:
            self.folder.chmod(0o500)
            return
        end = time.monotonic() + _REMOUNT_DEADLINE_S
        while not succeeds("mount", "-o", "remount,ro", self.folder):
            if time.monotonic() > end:
                raise StateError(f"{self.folder} cannot be made read-only: files on it stay open.")
            pause()
            time.sleep(_POLL_S)

    def allow_writing(self) -> None:
        """Makes the disk writable again."""
        if self.mounted:
            succeeds("mount", "-o", "remount,rw", self.folder)
        else:
            self.folder.chmod(0o700)


def succeeds(*command: str | Path) -> bool:
    """Runs a program and returns whether it ends with 0; one that is not there does not."""
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=_COMMAND_DEADLINE_S).returncode == 0
    except FileNotFoundError:
        return False
