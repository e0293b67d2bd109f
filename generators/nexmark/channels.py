"""Channel and url of a bid, which only nexmark/nexmark has (queries 21 and 22 there); an option, off by default."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from generators.nexmark.ids import Fields, pick
from generators.nexmark.text import phrase

__all__ = ["Channels"]

_HOT = ("Google", "Facebook", "Baidu", "Apple")
_NAMED = 10_000
_HOT_RATIO = 2
_BARE_RATIO = 10  # 1 url of this many does not name its channel


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

    >>> reversed_bits(0), reversed_bits(1), reversed_bits(2), reversed_bits(3)
    (0, 2147483648, 1073741824, 1073741824)
    """
    unsigned = int(f"{index:032b}"[::-1], 2)
    return abs(unsigned - (1 << 32)) if unsigned >> 31 else unsigned
