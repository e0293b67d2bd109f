"""Keyed entries as stored: a value with the CRC-32 of its name and content behind it."""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from impls.errors import CorruptStateError

__all__ = ["CHECK_BYTES", "open_value", "stored_value", "verify_entries", "wrong_rows"]

CHECK_BYTES = 4
_FEW = 32  # entries of one shape; below, checking them one by one is quicker


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _table()


def stored_value(name: bytes, value: bytes) -> bytes:
    """Returns a value as it is stored under a name."""
    return value + zlib.crc32(value, zlib.crc32(name)).to_bytes(CHECK_BYTES, "little")


def open_value(name: bytes, stored: bytes) -> bytes:
    """Returns the value of an entry; raises CorruptStateError when name or value are damaged."""
    value = stored[:-CHECK_BYTES]
    if stored[-CHECK_BYTES:] != zlib.crc32(value, zlib.crc32(name)).to_bytes(CHECK_BYTES, "little"):
        raise CorruptStateError(f"An entry of bin {int.from_bytes(name[1:3], 'big')} is damaged: wrong checksum.")
    return value


def verify_entries(names: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Raises CorruptStateError when any entry is damaged; entries of equal lengths are checked together."""
    lengths = np.fromiter(map(len, names), np.int64, len(names)) << 32 | np.fromiter(map(len, values), np.int64)
    for shape in np.unique(lengths).tolist():
        same = bool((lengths == shape).all())
        members = range(len(names)) if same else np.flatnonzero(lengths == shape).tolist()
        if len(members) < _FEW or shape & 0xFFFFFFFF < CHECK_BYTES:
            for i in members:
                open_value(names[i], values[i])
            continue
        raw = b"".join([names[i] + values[i] for i in members])
        wrong = wrong_rows(np.frombuffer(raw, np.uint8).reshape(len(members), -1))
        if len(wrong):
            first = members[int(wrong[0])]
            open_value(names[first], values[first])


def wrong_rows(rows: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Returns which rows, each an entry's name and stored value, shape (n, bytes), do not match their checksums."""
    stored = rows[:, -CHECK_BYTES:].copy().view("<u4")[:, 0]
    return np.flatnonzero(_crc_of_rows(rows[:, :-CHECK_BYTES]) != stored)


def _crc_of_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = _CRC[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return ~crc
