"""Append-only journals of JSON lines with checksums: plan log, observed log, command log."""

import contextlib
import errno
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from impls.closing import Closing
from impls.durability.files import sync_path
from impls.errors import ADVICE, StateError, UsageError
from impls.protocol.jsontext import from_text, to_text

FORMAT = 1

Entry = dict[str, Any]


class Journal(Closing):
    """append() returns when the line would survive the death of any process, with `fsync` also that of the host.

    One line is eight hexadecimal digits of CRC-32, a space, and the JSON text; the first line gives the format and the
    base: entries up to that epoch are no longer there. A torn last line was never acknowledged; it is cut off when the
    journal is opened.

    Attributes:
        path: the file.
        base: epoch of the journal's base, -1 for a journal that was never rewritten.
        size: bytes of the file.

    Raises:
        UsageError: a line is damaged, or the file is no journal of this format.
    """

    def __init__(self, path: Path, *, fsync: bool = False):
        self.path, self._fsync = path, fsync
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            self._replace([], -1)
        self.base, self.size = _head(path), sum(map(len, _lines(path)))
        self._file = path.open("ab", buffering=0)
        if self.size != path.stat().st_size:
            os.truncate(path, self.size)

    def append(self, entry: Entry) -> None:
        """Appends an entry in one write; raises StateError when it cannot be written: the file is then as it was."""
        line = _line(entry)
        try:
            self._write(line)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise StateError(f"The journal {self.path} cannot be written: {error}.") from error
        self.size += len(line)

    def _write(self, line: bytes) -> None:
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._fsync:
            os.fsync(self._file.fileno())

    def rewrite(self, entries: Iterable[Entry], *, base: int) -> None:
        """Replaces all entries atomically and goes on behind them; `base` is the epoch that needs no others."""
        self._replace(entries, base)
        self._file.close()
        self._file = self.path.open("ab", buffering=0)
        self.base, self.size = base, self.path.stat().st_size

    def _replace(self, entries: Iterable[Entry], base: int) -> None:
        head = {"format": FORMAT, "base": base}
        replace_bytes(self.path, b"".join(map(_line, [head, *entries])), fsync=self._fsync)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_journal(path: Path) -> list[Entry]:
    """Returns the whole entries of a journal; an absent file has none. Raises UsageError for a damaged one."""
    if not path.exists():
        return []
    _head(path)
    return [_entry(line) for line in islice(_lines(path), 1, None)]


def _line(entry: Entry) -> bytes:
    text = to_text(entry)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _entry(line: bytes) -> Entry:
    entry: Entry = from_text(line[9:-1])
    return entry


def _head(path: Path) -> int:
    """Returns the base that a journal's first line names."""
    head = next((_entry(line) for line in _lines(path)), {})
    if "format" not in head:
        raise UsageError(f"The journal {path} has lost its first line: {ADVICE}.")
    if head["format"] != FORMAT:
        raise UsageError(f"The journal {path} has format {head['format']}; this version reads format {FORMAT}.")
    return int(head["base"])


def _lines(path: Path) -> Iterator[bytes]:
    """Yields the whole lines, the first included, and leaves out a last one without an end."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            if line[:9] != b"%08x " % zlib.crc32(line[9:-1]):
                raise UsageError(f"The journal {path} is damaged in line {number}: {ADVICE}.")
            yield line


def replace_bytes(path: Path, data: bytes, *, fsync: bool = False) -> None:
    """Replaces a file's content so that a reader sees the old or the new one, also after the host's death with `fsync`.

    Raises StateError, and leaves the old content, when it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if fsync:
                os.fsync(file.fileno())
        temporary.replace(path)
        if fsync:
            sync_path(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StateError(f"The file {path} cannot be written: {error}.") from error
