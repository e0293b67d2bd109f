"""Random text as columns: letters for all events at once, each event's from its own random numbers."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generators.nexmark.ids import pick
from generators.random64 import draw

__all__ = ["exact", "extra", "phrase"]

_WORDS = 128  # random numbers of one event's text: 1,024 letters, or 512 characters of a phrase
_LENGTH_MIN = 3
_LETTERS = (np.arange(256) * 26 // 256 + ord("a")).astype(np.uint8)  # uneven by 1 part in 256
_CODES = np.arange(1 << 16)
_CODES_OF_MARK = (1 << 16) // 13


def _phrase_table(mark: str) -> NDArray[np.uint8]:
    """Returns a character for each 16 bits: the mark in 1 of 13, a letter otherwise."""
    letters = (_CODES - _CODES_OF_MARK) * 26 // ((1 << 16) - _CODES_OF_MARK) + ord("a")
    return np.where(_CODES < _CODES_OF_MARK, ord(mark), letters).astype(np.uint8)


_TABLES = {" ": _phrase_table(" "), "_": _phrase_table("_")}


def exact(seed: int, field: int, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.Array:
    """Returns text of a to z of the lengths given."""
    return _cut(_LETTERS, np.dtype(np.uint8), seed, field, ids=ids, lengths=lengths)


def phrase(seed: int, field: int, ids: NDArray[np.int64], limit: int, mark: str = " ") -> pa.Array:
    """Returns text of 3 to limit-1 characters of which 1 in 13 is the mark; spaces at the ends are cut off."""
    lengths = _LENGTH_MIN + pick(seed, field, ids, limit - _LENGTH_MIN)
    text = _cut(_TABLES[mark], np.dtype("<u2"), seed, field + 1, ids=ids, lengths=lengths)
    return pc.ascii_trim(text.cast(pa.string()), characters=" ").cast(pa.binary()) if mark == " " else text


def extra(
    seed: int, fields: tuple[int, int], ids: NDArray[np.int64], sizes: NDArray[np.int64] | int, average: int
) -> pa.Array:
    """Returns padding that brings events of these sizes to the average, give or take a fifth of what is missing.

    The first of the fields is that of the letters, the second that of the length.
    """
    missing = np.broadcast_to(np.maximum(average - sizes, 0), ids.shape)
    spread = np.floor(missing * 0.2 + 0.5).astype(np.int64)
    return exact(seed, fields[0], ids, missing - spread + pick(seed, fields[1], ids, 2 * spread))


def _cut(
    table: NDArray[np.uint8],
    code: np.dtype[Any],
    seed: int,
    field: int,
    *,
    ids: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> pa.Array:
    """Returns text whose characters are looked up by consecutive codes of an event's random numbers."""
    width = int(lengths.max(initial=0))
    words = -(-width * code.itemsize // 8)
    places = ids[:, None] * _WORDS + np.arange(words)
    codes = draw(seed, field, places).astype("<u8").view(code)[:, :width]
    data = table[codes][np.arange(width) < lengths[:, None]]
    offsets = np.zeros(len(ids) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
