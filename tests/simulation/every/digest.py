"""A digest of all that later events of a small world depend on, the same however the world came there."""

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

_APART = {
    "_spec", "_say", "_progress", "pace", "_breakdown",  # of a worker: the query, its voice, its speed
    "environment", "spec", "progress",  # read by itself, or the same in all of a run
}  # fmt: skip


def digest_of(value: Any) -> bytes:
    """Returns a digest of a value made of plain ones, dataclasses, arrays, tables and objects with attributes."""
    return hashlib.blake2b(repr(plain(value)).encode(), digest_size=16).digest()


def plain(value: Any) -> Any:
    """Returns a value whose `repr` shows all of it, in one order."""
    match value:
        case None | bool() | int() | float() | str() | bytes():
            found: Any = value
        case list() | tuple() | deque():
            found = [plain(part) for part in value]
        case Mapping():
            found = sorted(((plain(key), plain(part)) for key, part in value.items()), key=repr)
        case Set():
            found = sorted((plain(part) for part in value), key=repr)
        case np.ndarray():
            found = str(value.dtype), value.tolist()
        case np.generic():
            found = value.item()
        case pa.Table():
            found = value.to_pylist()
        case _:
            names = [(name, plain(part)) for name, part in _attributes(value) if name not in _APART]
            found = type(value).__name__, names
    return found


def _attributes(value: Any) -> list[tuple[str, Any]]:
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return sorted(vars(value).items())


def of_files(folder: Path, below: Sequence[str]) -> bytes:
    """Returns a digest of the files in some folders of a folder, with their names; half-written ones do not count."""
    found = hashlib.blake2b(digest_size=16)
    paths = (path for name in below for path in (folder / name).glob("[!.]*"))
    for path in sorted(paths):
        raw = path.read_bytes()
        found.update(f"{path.relative_to(folder)} {len(raw)} ".encode() + raw)
    return found.digest()
