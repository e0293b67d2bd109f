"""Counter-based random numbers and permutations: draw i is a function of (seed, stream, i), in any process the same.

The generator is splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure
17), evaluated at position i instead of step by step. Streams of one seed start at positions that are hashes themselves.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_ROUNDS = 6
_PERMUTING = 1 << 32  # the first stream of a permutation, apart from those that the key samplers draw from
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns splitmix64's finaliser of each value: a bijection of 64-bit words."""
    out = (values ^ (values >> np.uint64(30))) * _FIRST
    out = (out ^ (out >> np.uint64(27))) * _SECOND
    return out ^ (out >> np.uint64(31))


def draw(seed: int, stream: int, index: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns the 64 random bits of each index; any integer is a seed (taken modulo 2^64)."""
    return mix(index.astype(np.uint64) * np.uint64(_GOLDEN) + _origin(seed, stream))


def draw_unit(seed: int, stream: int, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns a number of [0, 1) for each index, a multiple of 2^-53."""
    return (draw(seed, stream, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _origin(seed: int, stream: int) -> NDArray[np.uint64]:
    inner = int(mix(np.array([seed & _MASK], np.uint64))[0])
    return mix(np.array([(inner + (stream + 1) * _GOLDEN) & _MASK], np.uint64))


class Permutation:
    """A seeded permutation of 0..size-1 that needs no table: a Feistel network, walked until inside.

    The network is over the next power of two. Each round adds (exclusive or) a hash of one half of the bits to the
    other half, which is its own inverse, so the network is a bijection of 2^bits for any hash. What lands at `size` or
    above goes through again ("cycle walking": Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002,
    section 3); fewer than half do.
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
        return draw(self._seed, _PERMUTING + turn, half.astype(np.int64)) >> np.uint64(32)
