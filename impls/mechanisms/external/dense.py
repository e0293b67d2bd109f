"""Writing dense blocks: only the words of a block that have changed go to the store.

A bin's blocks lie one behind the other in one Redis string, because a field of a hash can only be written whole: a
count that goes up would then write 4 KiB, to the server and to its log.
"""

from collections.abc import Mapping

import numpy as np

from impls.store.blocks import BLOCK_BYTES
from impls.store.tables import DENSE

__all__ = ["is_block", "words_changed"]

_WORDS = BLOCK_BYTES // 8


def is_block(name: bytes) -> bool:
    """Returns whether an entry is a dense block."""
    return name[:1] == DENSE


def words_changed(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Returns the words in which blocks differ; the name of a word is its block's and two bytes for its place.

    A block without an earlier value is returned whole, under its own name.
    """
    names = [name for name in after if name in before]
    whole = {name: block for name, block in after.items() if name not in before}
    old, new = (
        np.frombuffer(b"".join([blocks[name] for name in names]), "<u8").reshape(-1, _WORDS)
        for blocks in (before, after)
    )
    rows, places = np.nonzero(old != new)
    words = new[rows, places].view("V8").tolist()
    offsets = (places * 8).astype(">u2").view("V2").tolist()
    return whole | {names[row] + at: word for row, at, word in zip(rows.tolist(), offsets, words, strict=True)}
