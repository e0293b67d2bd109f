"""A seeded permutation of 0..size-1 that needs no table."""

import numpy as np
from numpy.typing import NDArray

from generators.random64 import draw

__all__ = ["Permutation"]

_ROUNDS = 6
_STREAM = 1 << 32  # apart from the streams that the key samplers draw from


class Permutation:
    """Maps 0..size-1 onto itself: a Feistel network over the next power of two, walked until inside.

    Each round adds (exclusive or) a hash of one half of the bits to the other half, which is its own inverse, so the
    network is a bijection of 2^bits for any hash. What lands at `size` or above goes through again ("cycle walking":
    Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, section 3); fewer than half do.
    """

    def __init__(self, size: int, seed: int):
        self.size = size
        self._seed = seed
        bits = (size - 1).bit_length()
        self._low_bits = np.uint64(bits - bits // 2)
        self._low_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._high_mask = np.uint64((1 << (bits // 2)) - 1)

    def __call__(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the image of each value; values must be of 0..size-1."""
        out = self._network(values)
        outside = np.flatnonzero(out >= self.size)
        while outside.size:
            out[outside] = self._network(out[outside])
            outside = outside[out[outside] >= self.size]
        return out

    def _network(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        word = values.astype(np.uint64)
        high, low = word >> self._low_bits, word & self._low_mask
        for turn in range(0, _ROUNDS, 2):
            high = high ^ (self._hash(turn, low) & self._high_mask)
            low = low ^ (self._hash(turn + 1, high) & self._low_mask)
        return ((high << self._low_bits) | low).astype(np.int64)

    def _hash(self, turn: int, half: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return draw(self._seed, _STREAM + turn, half.astype(np.int64)) >> np.uint64(32)
