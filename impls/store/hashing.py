"""Key to hash to bin to worker, computed identically by Spark SQL and by Python.

The hash of a key is what Spark's `xxhash64` gives: for a string or binary column xxhash64 with seed 42 of its bytes,
for an integer column the same of its 8 little-endian bytes. The top bits of the hash name the bin.
"""

from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program uses

from impls.errors import UsageError

__all__ = [
    "MAX_BINS",
    "SEED",
    "bin_column",
    "bin_of_hash",
    "check_bins",
    "hash_bytes",
    "hash_int64",
    "key_bytes",
    "routing_literal",
    "worker_column",
    "workers_column",
]

_DIGIT = 128  # a byte below is one character of UTF-8, whose code Spark's `ascii` gives
SEED = 42
MAX_BINS = 1 << 14
_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


def check_bins(bins: int, workers: int) -> int:
    """Returns log2(bins); raises UsageError when bins is not a power of two in 2..16384 or below the workers."""
    if bins < 2 or bins > MAX_BINS or bins & (bins - 1):
        raise UsageError(f"The number of bins must be a power of two from 2 to {MAX_BINS}, not {bins}.")
    if bins < workers:
        raise UsageError(f"{bins} bins are too few for {workers} workers: give at least one bin per worker.")
    return bins.bit_length() - 1


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


def bin_column(key: Column, bins: int) -> Column:
    """Returns the Spark expression for the bin of a key column: binary, string or 64-bit integer."""
    return F.shiftrightunsigned(F.xxhash64(key), 64 - check_bins(bins, 1)).cast("int")


def key_bytes(key: Column) -> Column:
    """Returns the Spark expression for a 64-bit integer column's 8 big-endian bytes, so that bytes sort as numbers."""
    return F.unhex(F.lpad(F.hex(key.cast("long")), 16, "0"))


def routing_literal(routing: NDArray[np.int32], digits: int) -> bytes:
    """Returns the routing as bytes: of each bin the worker's digits to the base of 128, the highest first.

    As a bytes literal a routing costs 1 to 6 ms of planning; as an array literal 23 ms at 256 bins, 220 ms at 4,096.
    """
    places = [routing // _DIGIT**place % _DIGIT for place in reversed(range(digits))]
    return np.column_stack(places).astype(np.uint8).tobytes()


def workers_column(bin_: str, routing: NDArray[np.int32], shadows: Sequence[tuple[int, int]]) -> Column:
    """Returns the Spark expression for all workers that process a bin: the routed one and those with a shadow."""
    columns, left = [worker_column(bin_, routing)], list(shadows)
    nobody = max([int(routing.max()), *(worker for _, worker in shadows)]) + 1
    while left:  # one array column for each bin's first, second, ... shadow
        second = np.full(len(routing), nobody, np.int32)
        first = dict(reversed(left))
        second[list(first)] = list(first.values())
        left = [pair for pair in left if first[pair[0]] != pair[1]]
        columns.append(worker_column(bin_, second))
    return F.array_remove(F.array(*columns), F.lit(nobody))


def worker_column(bin_: str, routing: NDArray[np.int32]) -> Column:
    """Returns the Spark expression for the worker of a bin, which a column names, under a routing.

    It takes 0.3 µs for each digit of a worker's number to the base of 128; `conv` of two bytes took 3 µs. It is made
    from text in one call of the JVM, in 0.5 ms; nine calls took 6 ms of every epoch whose routing is another.
    """
    digits = 1 if routing.max() < _DIGIT else 2 if routing.max() < _DIGIT**2 else 3
    table = f"X'{routing_literal(routing, digits).hex()}'"
    terms = [
        f"ascii(string(substring({table}, {bin_} * {digits} + {place + 1}, 1))) * {_DIGIT ** (digits - 1 - place)}"
        for place in range(digits)
    ]
    return F.expr(" + ".join(terms))
