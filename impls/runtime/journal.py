"""Append-only journals of JSON lines with checksums: plan log, observed log, command log."""

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Journal", "read_journal"]


class Journal:
    """append() returns when the line would survive the death of any process; a torn last line is cut when opened.

    One line is eight hexadecimal digits of CRC-32, a space, and the JSON text.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("ab")
        whole = _whole_bytes(path)
        if whole != path.stat().st_size:
            os.truncate(path, whole)

    def append(self, entry: dict[str, Any]) -> None:
        """Appends an entry in one write."""
        text = json.dumps(entry, separators=(",", ":")).encode()
        self._file.write(b"%08x %s\n" % (zlib.crc32(text), text))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _entries(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    with path.open("rb") as file:
        for line in file:
            if len(line) < 10 or not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
                return
            yield json.loads(line[9:-1]), len(line)


def _whole_bytes(path: Path) -> int:
    return sum(size for _, size in _entries(path))


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Returns all whole entries up to the first torn one; an absent file has none."""
    return [entry for entry, _ in _entries(path)] if path.exists() else []
