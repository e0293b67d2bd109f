"""Dense blocks: 509 counts and a checksum, together one page of LMDB.

The checksum is a sum of the counts, each times its own odd weight, modulo 2^64: one changed bit always changes it, it
follows an addition without reading the block anew, and a block of zero bytes is not a valid one.
"""

import numpy as np
from numpy.typing import NDArray

from impls.errors import CorruptStateError

SLOTS = 509
_WORDS = SLOTS + 1  # 4,080 bytes and LMDB's 16-byte header fill one page exactly
BLOCK_BYTES = _WORDS * 8
_SALT = np.uint64(0x9E3779B97F4A7C15)
_WEIGHTS = (np.arange(1, _WORDS, dtype=np.uint64) * _SALT) | np.uint64(1)
_SLOT_BITS = 10

Words = NDArray[np.uint64]


def codes_of(bins: NDArray[np.int32], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns one int64 per (bin, slot): bin << 40 | block << 10 | place in the block, in the order of stored keys."""
    block = slots // SLOTS
    code: NDArray[np.int64] = (bins.astype(np.int64) << 40) | (block << _SLOT_BITS) | (slots - block * SLOTS)
    return code


def place(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.int64]]:
    """Returns (distinct (bin, block) numbers m, row of each code in them, place of each code in its block)."""
    blocks, row = np.unique(codes >> _SLOT_BITS, return_inverse=True)
    return blocks, row, codes & ((1 << _SLOT_BITS) - 1)


def _salts(numbers: NDArray[np.int64]) -> Words:
    return (numbers.astype(np.uint64) + np.uint64(1)) * _SALT


def create_blocks(numbers: NDArray[np.int64]) -> bytes:
    """Returns blocks of zero counts with the numbers that `place` gives."""
    words = np.zeros((len(numbers), _WORDS), "<u8")
    words[:, SLOTS] = _salts(numbers)
    return words.tobytes()


def open_blocks(raw: bytes, numbers: NDArray[np.int64], where: str) -> Words:
    """Returns stored blocks as writable words, shape (m, 510).

    Raises CorruptStateError when a checksum is wrong, or is that of a block of another number.
    """
    words = np.frombuffer(raw, "<u8").reshape(-1, _WORDS).copy()
    if (words[:, :SLOTS] @ _WEIGHTS + _salts(numbers) != words[:, SLOTS]).any():
        raise CorruptStateError(f"A block of counts in {where} is damaged: its checksum does not match.")
    return words


def write_counts(words: Words, row: NDArray[np.intp], at: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Sets counts, shape (n,), at distinct places of opened blocks, and their checksums."""
    new = counts.astype(np.uint64)
    change = (new - words[row, at]) * _WEIGHTS[at]
    words[row, at] = new
    np.add.at(words[:, SLOTS], row, change)
