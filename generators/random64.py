"""Counter-based random numbers: draw i is a function of (seed, stream, i), so any process can make any part.

The generator is splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure
17), evaluated at position i instead of step by step. Streams of one seed start at positions that are hashes themselves.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw", "draw_unit", "mix"]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
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
