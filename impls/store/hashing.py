"""Key to hash to bin to worker, computed identically by Spark SQL and by Python.

The hash of a key is what Spark's `xxhash64` gives: for a string or binary column xxhash64 with seed 42 of its bytes,
for an integer column the same of its 8 little-endian bytes. The top bits of the hash name the bin.
"""

import numpy as np
import xxhash
from numpy.typing import NDArray

from impls.protocol.arrays import check_bins

SEED = 42
_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


def hash_bytes(key: bytes) -> int:
    """Returns the unsigned 64-bit hash of a key."""
    return xxhash.xxh64_intdigest(key, seed=SEED)


def _rotl(x: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    return (x << np.uint64(n)) | (x >> np.uint64(64 - n))


def hash_int64(keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns `hash_bytes` of each key's 8 little-endian bytes, vectorised; shape (n,) in, shape (n,) out."""
    lane = keys.astype("<i8").view("<u8")
    with np.errstate(over="ignore"):
        acc = np.full(len(keys), np.uint64(SEED) + _P5 + np.uint64(8), np.uint64)
        acc ^= _rotl(lane * _P2, 31) * _P1
        acc = _rotl(acc, 27) * _P1 + _P4
        acc = (acc ^ (acc >> np.uint64(33))) * _P2
        acc = (acc ^ (acc >> np.uint64(29))) * _P3
    return acc ^ (acc >> np.uint64(32))


def bin_of_hash(hashes: NDArray[np.uint64], bins: int) -> NDArray[np.int32]:
    """Returns the bins of hashes: their top log2(bins) bits."""
    return (hashes >> np.uint64(64 - check_bins(bins, 1))).astype(np.int32)


def bin_sql(key: str, bins: int) -> str:
    """Returns the bin of a key as a Spark SQL expression; `key` is one of type binary, string or bigint."""
    return f"cast(shiftrightunsigned(xxhash64({key}), {64 - check_bins(bins, 1)}) as int)"
