"""The key-count stream: record layout, partitions, and the digest that identifies a whole stream.

A record's value is 16 bytes, two little-endian int64: key, and scheduled time in microseconds since the Unix epoch.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from generators.errors import GeneratorError
from generators.keys import KeySampler
from generators.rates import Schedule

__all__ = ["RECORD_BYTES", "decode_block", "digest", "encode_block", "partition_of", "split_block"]

RECORD_BYTES = 16
_BLOCK = 1 << 16


def encode_block(keys: NDArray[np.int64], scheduled_us: NDArray[np.int64]) -> bytes:
    """Returns the values of consecutive records, one behind the other."""
    return np.column_stack((keys, scheduled_us)).astype("<i8").tobytes()


def split_block(block: bytes) -> list[bytes]:
    """Returns the values of an encoded block one by one."""
    return [block[at : at + RECORD_BYTES] for at in range(0, len(block), RECORD_BYTES)]


def decode_block(values: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns (keys, scheduled times in microseconds) of record values; raises GeneratorError for another length."""
    wrong = next((value for value in values if len(value) != RECORD_BYTES), None)
    if wrong is not None:
        raise GeneratorError(f"A key-count record has {RECORD_BYTES} bytes, not {len(wrong)}: this is another stream.")
    pairs = np.frombuffer(b"".join(values), "<i8").reshape(-1, 2).astype(np.int64)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def partition_of(index: NDArray[np.int64], partitions: int) -> NDArray[np.int64]:
    """Returns the input partition of each record number: i modulo the number of partitions."""
    return index % partitions


def digest(keys: KeySampler, schedule: Schedule, records: int) -> str:
    """Returns the sha256 of the first `records` record values of a stream that starts at time 0."""
    total = hashlib.sha256()
    for first in range(0, records, _BLOCK):
        count = min(_BLOCK, records - first)
        total.update(encode_block(keys.block(first, count), schedule.times_us(first, count)))
    return total.hexdigest()
