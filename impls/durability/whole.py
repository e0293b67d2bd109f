"""Folders that are there whole or not at all."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from impls.durability.files import sync_path
from impls.errors import UsageError


@contextmanager
def made_whole(into: Path) -> Iterator[Path]:
    """Yields a folder beside `into` that takes its place when the block ends, and is deleted when it fails.

    A process that dies leaves the folder, which the next one deletes; `into` is there whole or not at all.

    Raises:
        UsageError: `into` is there and not empty, or another file system's root, its parent cannot be written, or
            another process is at it.
    """
    into = into.resolve()  # a link stays one to what is made
    try:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise UsageError(f"The folder {into} is there already: name a new one.")
    except OSError as error:
        raise UsageError(f"The folder {into} cannot be read: {error.strerror}.") from error
    if into.is_mount():
        raise UsageError(f"The folder {into} is that of a file system, which nothing can replace: name one in it.")
    half, lock = (into.with_name(f".{into.name}.{what}") for what in ("half", "lock"))
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("a")
    except OSError as error:
        raise UsageError(f"The folder {into} cannot be made: {error}.") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"Another process is making {into}: wait until it has ended.") from None
        try:
            shutil.rmtree(half, ignore_errors=True)
            with _in_a_sentence(into):
                half.mkdir()
            yield half
            with _in_a_sentence(into):
                half.replace(into)
                sync_path(into.parent)
        finally:
            shutil.rmtree(half, ignore_errors=True)
            with suppress(FileNotFoundError):
                lock.unlink()


@contextmanager
def _in_a_sentence(into: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"The folder {into} cannot be made: {error.strerror}.") from error


def made_folder(folder: str | Path) -> str:
    """Makes a folder unless it is there, and returns its whole path."""
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return str(path)
