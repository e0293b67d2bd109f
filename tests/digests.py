"""What identifies a whole stream: a digest that moves means another workload under the same name."""

import hashlib

import numpy as np

from generators.keys import KeySampler
from generators.nexmark.stream import NexmarkStream
from generators.rates import Schedule
from generators.stream import BLOCK_RECORDS, Share

__all__ = ["keycount_digest", "nexmark_digest"]

_BLOCK = 1 << 16


def keycount_digest(keys: KeySampler, schedule: Schedule, records: int) -> str:
    """The sha256 of keys and times of a stream that starts at time 0, as pairs of int64: of what is sent, not how."""
    total = hashlib.sha256()
    for first in range(0, records, _BLOCK):
        count = min(_BLOCK, records - first)
        pairs = np.column_stack((keys.block(first, count), schedule.times_us(first, count)))
        total.update(pairs.astype("<i8").tobytes())
    return total.hexdigest()


def nexmark_digest(stream: NexmarkStream) -> str:
    """The sha256 of all record values of a stream, each with a line feed behind it."""
    total = hashlib.sha256()
    for block in stream.blocks(Share(0, 1, 1), [0], BLOCK_RECORDS):
        total.update(b"".join(value + b"\n" for value in block.values))
    return total.hexdigest()
