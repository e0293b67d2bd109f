"""The base of a query's journals: what the controller knew at the end of an epoch, so that earlier entries can go."""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError

BASE = "base.json"
FORMAT = 2


@dataclass(frozen=True)
class Base:
    """The controller at the end of `epoch`, as `Controller.to_json` gives it; all fields are JSON values."""

    query: str
    epoch: int
    controller: dict[str, Any]

    def keeps(self, journal: str, entry: dict[str, Any]) -> bool:
        """Returns whether an entry of the journal `plan`, `observed` or `commands` is not contained in the base.

        The plan of the base's own epoch is kept: Spark may not have committed that epoch, and runs it again.
        """
        if journal == "plan":
            return bool(entry["epoch"] >= self.epoch)
        if journal == "observed":
            return bool(entry["epoch"] > self.epoch)
        changes = self.controller.get("changing", {"pending": []})
        waiting = {command["id"] for command in [*self.controller["pending"], *changes["pending"]]}
        return entry["from_epoch"] > self.epoch and entry["id"] not in waiting


def write_base(folder: Path, base: Base, *, fsync: bool = False) -> None:
    """Replaces the base in a folder; raises StateError when it cannot be written."""
    fields = {"query": base.query, "epoch": base.epoch, "controller": base.controller}
    data = json.dumps({"format": FORMAT, "crc32": _checksum(base), **fields}, separators=(",", ":"))
    replace_bytes(folder / BASE, data.encode(), fsync=fsync)


def read_base(folder: Path, query: str) -> Base | None:
    """Returns the base in a folder, None if there is none yet.

    Raises UsageError that names the file when it is damaged, of another format or of another query.
    """
    path = folder / BASE
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_bytes())
        version = data["format"]
        base = Base(data["query"], data["epoch"], data["controller"])
        whole = data["crc32"] == _checksum(base)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The base {path} is damaged: {ADVICE}.") from error
    if version != FORMAT:
        raise UsageError(f"The base {path} has format {version}; this version reads format {FORMAT}.")
    if not whole:
        raise UsageError(f"The base {path} is damaged (its checksum does not match): {ADVICE}.")
    if base.query != query:
        raise UsageError(f"The base {path} belongs to another query: {ADVICE}.")
    return base


def _checksum(base: Base) -> int:
    return zlib.crc32(json.dumps([base.query, base.epoch, base.controller], separators=(",", ":")).encode())
