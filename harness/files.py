"""The project's folder; files of a result: JSON written whole or not at all, JSON lines that survive a cut-off."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.closing import Closing

ROOT = Path(__file__).resolve().parents[1]
RESULTS = (ROOT if (ROOT / "tasks.py").is_file() else Path.cwd()) / "results"  # an installed package has no repository
_TAIL_BYTES = 1 << 16


def write_text(path: Path, text: str) -> None:
    """Writes a text file under a temporary name and renames it, so that a reader sees the old or the new one whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Writes a JSON file whole or not at all; raises ValueError for NaN and infinity, which JSON has not."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object of a JSON file, an empty one if there is no such file; raises ValueError if it is broken."""
    if not path.exists():
        return {}
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    return data


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the objects of a file of JSON lines, none if it is missing; a last line cut off is left out.

    Raises:
        ValueError: any other line is not JSON; the message names the file and the line.
    """
    if not path.exists():
        return []
    out: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
        try:
            out.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path} line {number} is not JSON: {error}.") from error
    return out


class JsonLines(Closing):
    """Appends objects to a file, one per line, each handed to the operating system at once.

    A line that an earlier process left half written is cut off first, so that only a last line can ever be torn.
    """

    def __init__(self, path: Path):
        _cut_torn_line(path)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, data: Mapping[str, Any]) -> None:
        """Appends one object."""
        self._file.write(json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        file.truncate(end)
