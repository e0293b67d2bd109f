"""Key to bin, computed again from the definition and not by the pipeline's code."""

from collections.abc import Callable

import numpy as np
import xxhash
from numpy.typing import NDArray

__all__ = ["BinOf", "dense_bins", "hash_bins"]

BinOf = Callable[[NDArray[np.int64]], NDArray[np.int64]]

_SEED = 42


def dense_bins(keys: int, bins: int) -> BinOf:
    """Returns the bin function of dense key-count: `bins` contiguous ranges of the keys 0..keys-1."""
    per_bin = -(-keys // bins)
    return lambda key: key // per_bin


def hash_bins(bins: int) -> BinOf:
    """Returns the bin function of hash-count: the top bits of Spark's xxhash64 of a bigint.

    That is xxhash64, seed 42, of its 8 little-endian bytes (the keys of result messages are big-endian).
    """
    shift = 64 - (bins.bit_length() - 1)

    def bin_of(key: NDArray[np.int64]) -> NDArray[np.int64]:
        digest = xxhash.xxh64_intdigest
        names = key.astype("<i8").view("V8").tolist()
        return np.fromiter((digest(name, _SEED) >> shift for name in names), np.int64, len(key))

    return bin_of
