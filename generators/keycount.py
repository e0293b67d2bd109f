"""The key-count stream: the layout of its records.

A record's value is 32 decimal digits: 16 of its key, 16 of its scheduled time in microseconds since the Unix epoch.
Spark makes a long of such a text in 0.5 µs; of eight bytes, by way of `conv`, in 3 µs.
"""

import numpy as np
from numpy.typing import NDArray

from generators.errors import GeneratorError

__all__ = ["NUMBER_BYTES", "encode_block", "split_block"]

NUMBER_BYTES = 16
_RECORD_BYTES = 2 * NUMBER_BYTES
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
