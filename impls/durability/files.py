"""Whole files, written atomically, below one folder of any pyarrow file system: local, HDFS, S3 and the like."""

import contextlib
import errno
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pyarrow import fs

from impls.addresses import shown
from impls.errors import StateError, UsageError

LEVELS = ("none", "process", "host")
_RENAMES = {"local", "hdfs"}  # object stores show a file only when it is closed, and rename by copying
_AWAY = {  # what a mounted folder answers while its server, or the mount itself, is gone
    errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN,
    errno.ENXIO, errno.ENODEV, errno.ECONNRESET,
}  # fmt: skip
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0  # the first one, and the longest: each is twice as long as the one before
_numbers = itertools.count()
_TEMPORARY = re.compile(r"\..+\.\d+-\d+")  # name, process and number of a file that is being written
_T = TypeVar("_T")


def check_level(level: str, *, replicates: bool = False) -> str:
    """Returns a durability level's name; raises UsageError for an unknown one, or one that cannot feed replicas."""
    if level not in LEVELS:
        raise UsageError(f"The durability {level!r} is unknown: use one of {', '.join(LEVELS)}.")
    if replicates and level == "none":
        raise UsageError('Replicas are fed from the changelog, which durability "none" has not: use process or host.')
    return level


@lru_cache(maxsize=64)
def _resolve(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        if "://" not in uri:
            return fs.LocalFileSystem(), str(Path(uri).absolute())
        system, path = fs.FileSystem.from_uri(uri)
        return system, path.rstrip("/")
    except (ValueError, OSError) as error:
        why = str(error).replace(uri, shown(uri))
        raise UsageError(f"The folder {shown(uri)} cannot be used: {why}.") from None


@dataclass(frozen=True)
class Files:
    """The files below `uri`, a local path or anything pyarrow's `FileSystem.from_uri` takes.

    A file is there whole or not at all. With `fsync` a local file also survives the failure of its host once `write`
    has returned; an object store does this without help. A folder that is away, as when a host has lost its mount, is
    waited for: a read or write fails after `patience_s`.
    """

    uri: str = field(repr=False)
    fsync: bool = False
    patience_s: float = 0.0

    @property
    def place(self) -> str:
        """The folder's path or address as a user may read it: without a key."""
        return shown(self.uri)

    def make_folders(self, names: Iterable[str]) -> None:
        """Creates folders that `write` puts files into; raises UsageError when that is not possible."""
        system, root = _resolve(self.uri)
        try:
            for name in names:
                system.create_dir(f"{root}/{name}", recursive=True)
        except OSError as error:
            raise UsageError(f"The checkpoint folder {self.place} cannot be written: {error}.") from error

    def path(self, name: str) -> str:
        """Returns the whole path of a file, for messages."""
        return f"{_resolve(self.uri)[1]}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Writes or replaces a file; raises StateError when the file system refuses."""
        system, root = _resolve(self.uri)
        final = f"{root}/{name}"
        try:
            self._patiently(lambda: self._put(system, final, data))
        except OSError as error:
            raise StateError(f"The file {final} cannot be written: {error}.") from error

    def _put(self, system: fs.FileSystem, final: str, data: bytes) -> None:
        if _kind(system) not in _RENAMES:
            with system.open_output_stream(final) as stream:
                stream.write(data)
            return
        folder, _, stem = final.rpartition("/")
        temporary = f"{folder}/.{stem}.{os.getpid()}-{next(_numbers)}"
        try:
            with system.open_output_stream(temporary) as stream:
                stream.write(data)
            if self.fsync:
                _sync(temporary)
            system.move(temporary, final)
            if self.fsync:
                _sync(folder)
        except OSError:
            with contextlib.suppress(OSError):
                system.delete_file(temporary)
            raise

    def read(self, name: str) -> bytes | None:
        """Returns a file's content, None for an absent one; raises StateError when it cannot be read."""
        system, root = _resolve(self.uri)
        try:
            return self._patiently(lambda: self._get(system, f"{root}/{name}"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"The file {root}/{name} cannot be read: {error}.") from error

    def _get(self, system: fs.FileSystem, path: str) -> bytes | None:
        try:
            with system.open_input_file(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            if self.patience_s and system.get_file_info(path.rpartition("/")[0]).type == fs.FileType.NotFound:
                raise  # it is the folder that is not there
            return None

    def _patiently(self, do: Callable[[], _T]) -> _T:
        """Does something again, with longer and longer pauses, as long as the folder is away."""
        end, pause_s = time.monotonic() + self.patience_s, _PAUSE_S
        while True:
            try:
                return do()
            except OSError as error:
                if error.errno not in _AWAY or time.monotonic() + pause_s > end:
                    raise
                time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def names(self, folder: str) -> list[tuple[str, int]]:
        """Returns (name, bytes) of the files in a folder, sorted by name; half-written ones are left out."""
        system, root = _resolve(self.uri)
        found = system.get_file_info(fs.FileSelector(f"{root}/{folder}", allow_not_found=True))
        files = [(f"{folder}/{info.base_name}", info.size) for info in found if info.type == fs.FileType.File]
        return sorted((name, size) for name, size in files if not name.rpartition("/")[2].startswith("."))

    def sweep(self, folder: str) -> int:
        """Deletes the half-written files in a folder and returns their bytes.

        A writer that is alive writes its file anew, or fails: only who starts the writers may do this, before it does.
        """
        system, root = _resolve(self.uri)
        found = system.get_file_info(fs.FileSelector(f"{root}/{folder}", allow_not_found=True))
        left = [info for info in found if info.type == fs.FileType.File and _TEMPORARY.fullmatch(info.base_name)]
        self.delete([f"{folder}/{info.base_name}" for info in left])
        return sum(info.size for info in left)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files; one that is gone already is passed over."""
        system, root = _resolve(self.uri)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(f"{root}/{name}")

    def clear(self) -> None:
        """Deletes the folder with all that is below it; raises StateError when the file system refuses."""
        system, root = _resolve(self.uri)
        try:
            if system.get_file_info(root).type != fs.FileType.NotFound:
                system.delete_dir(root)
        except OSError as error:
            raise StateError(f"The folder {root} cannot be deleted: {error}.") from error


def _kind(system: fs.FileSystem) -> str:
    return _kind(system.base_fs) if isinstance(system, fs.SubTreeFileSystem) else str(system.type_name)


def _sync(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a path of another kind of file system
        sync_path(path)


def sync_path(path: str | Path) -> None:
    """Makes a file, or the names in a folder, survive the host's death."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
