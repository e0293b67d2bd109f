"""Random text as columns: letters for all events at once, each event's from its own random numbers.

Channel and url of a bid, which only nexmark/nexmark has (queries 21 and 22 there), are an option, off by default.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generators.nexmark.ids import Fields, pick
from generators.random64 import draw

__all__ = ["Channels", "exact", "extra", "phrase"]

_WORDS = 128  # random numbers of one event's text: 1,024 letters, or 512 characters of a phrase
_LENGTH_MIN = 3
_LETTERS = (np.arange(256) * 26 // 256 + ord("a")).astype(np.uint8)  # uneven by 1 part in 256
_CODES = np.arange(1 << 16)
_CODES_OF_MARK = (1 << 16) // 13
_HOT = ("Google", "Facebook", "Baidu", "Apple")
_NAMED = 10_000
_HOT_RATIO = 2
_BARE_RATIO = 10  # 1 url of this many does not name its channel


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


class Channels:
    """Half of the bids come through one of 4 hot channels, the others through one of 10,000.

    A channel has one url for ever. Its number is the absolute value of its index with the 32 bits reversed, as in Java.
    """

    def __init__(self, seed: int):
        self._seed = seed
        number = np.arange(len(_HOT) + _NAMED, dtype=np.int64)
        folders = [phrase(seed, field, number, 5, "_").to_pylist() for field in range(Fields.URL, Fields.URL + 6, 2)]
        bare = pick(seed, Fields.URL + 6, number, _BARE_RATIO) == 0
        fragments = []
        for i, place in enumerate(zip(*folders, strict=True)):
            index = i - len(_HOT)
            name = _HOT[i] if index < 0 else f"channel-{index}"
            url = f"https://www.nexmark.com/{b'/'.join(place).decode()}/item.htm?query=1"
            url += "" if index < 0 or bare[i] else f"&channel_id={_reversed_bits(index)}"
            fragments.append(f',"channel":"{name}","url":"{url}"'.encode())
        self._fragments = pa.array(fragments, pa.binary())

    def of(self, ids: NDArray[np.int64]) -> pa.Array:
        """Returns both fields of each bid, with a comma before them."""
        hot = pick(self._seed, Fields.HOT_CHANNEL, ids, _HOT_RATIO) > 0
        channel = np.where(
            hot,
            pick(self._seed, Fields.CHANNEL, ids, len(_HOT)),
            len(_HOT) + pick(self._seed, Fields.CHANNEL, ids, _NAMED),
        )
        return self._fragments.take(pa.array(channel))


def _reversed_bits(index: int) -> int:
    """Returns the absolute value of a 32-bit integer with its bits reversed.

    >>> [_reversed_bits(index) for index in range(4)]
    [0, 2147483648, 1073741824, 1073741824]
    """
    unsigned = int(f"{index:032b}"[::-1], 2)
    return abs(unsigned - (1 << 32)) if unsigned >> 31 else unsigned
