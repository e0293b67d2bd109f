"""The key-count stream: record layout, partitions, and the digest that identifies a whole stream.

A record's value is 32 decimal digits: 16 of its key, 16 of its scheduled time in microseconds since the Unix epoch.
Spark makes a long of such a text in 0.5 µs; of eight bytes, by way of `conv`, in 3 µs.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from generators.errors import GeneratorError
from generators.keys import KeySampler
from generators.rates import Schedule

__all__ = ["NUMBER_BYTES", "digest", "encode_block", "partition_of", "split_block"]

NUMBER_BYTES = 16
_RECORD_BYTES = 2 * NUMBER_BYTES
_BLOCK = 1 << 16
_FOUR_DIGITS = np.array([b"%04d" % number for number in range(10_000)], "S4")


def encode_block(keys: NDArray[np.int64], scheduled_us: NDArray[np.int64]) -> bytes:
    """Returns the values of consecutive records, one behind the other.

    Raises:
        GeneratorError: a number is negative, or has more than 16 digits.
    """
    left = np.column_stack((keys, scheduled_us)).reshape(-1)
    if len(wrong := left[(left < 0) | (left >= 10**NUMBER_BYTES)]):
        raise GeneratorError(f"A key-count record holds numbers from 0 to 10^{NUMBER_BYTES} - 1, not {wrong[0]}.")
    groups = np.empty((len(left), NUMBER_BYTES // 4), "S4")
    for place in reversed(range(NUMBER_BYTES // 4)):
        left, four = np.divmod(left, 10_000)
        groups[:, place] = _FOUR_DIGITS[four]
    return groups.tobytes()


def split_block(block: bytes) -> list[bytes]:
    """Returns the values of an encoded block one by one."""
    return [block[at : at + _RECORD_BYTES] for at in range(0, len(block), _RECORD_BYTES)]


def partition_of(index: NDArray[np.int64], partitions: int) -> NDArray[np.int64]:
    """Returns the input partition of each record number: i modulo the number of partitions."""
    return index % partitions


def digest(keys: KeySampler, schedule: Schedule, records: int) -> str:
    """Returns the sha256 of the first `records` records of a stream that starts at time 0, as pairs of int64.

    It identifies what is sent, independent of the form of a record's value.
    """
    total = hashlib.sha256()
    for first in range(0, records, _BLOCK):
        count = min(_BLOCK, records - first)
        pairs = np.column_stack((keys.block(first, count), schedule.times_us(first, count)))
        total.update(pairs.astype("<i8").tobytes())
    return total.hexdigest()
