"""Key to bin, computed again from the definition and not by the pipeline's code."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

__all__ = ["BinOf", "dense_bins", "hash_bins"]

_SEED = 42


@dataclass(frozen=True)
class BinOf:
    """The bins of keys, int64 arrays of shape (n,) in and out; `bins` is their number."""

    bins: int
    function: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def __call__(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the bin of each key."""
        return self.function(key)


def dense_bins(keys: int, bins: int) -> BinOf:
    """Returns the bin function of dense key-count: `bins` contiguous ranges of the keys 0..keys-1."""
    per_bin = -(-keys // bins)
    return BinOf(bins, lambda key: key // per_bin)


def hash_bins(bins: int) -> BinOf:
    """Returns the bin function of hash-count: the top bits of Spark's xxhash64 of a bigint.

    That is xxhash64, seed 42, of its 8 little-endian bytes (the keys of result messages are big-endian).
    """
    shift = 64 - (bins.bit_length() - 1)

    def bin_of(key: NDArray[np.int64]) -> NDArray[np.int64]:
        digest = xxhash.xxh64_intdigest
        names = key.astype("<i8").view("V8").tolist()
        return np.fromiter((digest(name, _SEED) >> shift for name in names), np.int64, len(key))

    return BinOf(bins, bin_of)
