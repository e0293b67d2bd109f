"""The part of a key-count stream that one producer process sends, in blocks made ahead of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from generators.errors import GeneratorError
from generators.keycount import encode_block, partition_of, split_block
from generators.keys import KeySampler
from generators.rates import Schedule

__all__ = ["Block", "Share", "Stream"]


@dataclass(frozen=True)
class Share:
    """Share `number` (from 0) of `of` producer processes: it sends the records i with i % of == number.

    Raises GeneratorError unless `of` divides the number of partitions: only then has each partition one producer, which
    keeps its records in order and lets a resumed producer read its place off the partition's end.
    """

    number: int
    of: int
    partitions: int

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise GeneratorError(f"The number of partitions must be at least 1, not {self.partitions}.")
        if not 0 <= self.number < self.of:
            raise GeneratorError(f"A share is given as 0/N to N-1/N, not {self.number}/{self.of}.")
        if self.partitions % self.of:
            raise GeneratorError(
                f"{self.partitions} partitions cannot be divided among {self.of} producers: "
                f"use a divisor of {self.partitions}."
            )

    @classmethod
    def parse(cls, text: str, partitions: int) -> "Share":
        """Reads "i/n", i counting from 0."""
        number, slash, of = text.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal()):
            raise GeneratorError(f"A share is given as i/n with i from 0, such as 0/2, not {text!r}.")
        return cls(int(number), int(of), partitions)

    def own_partitions(self) -> range:
        """Returns the partitions that no other share writes."""
        return range(self.number, self.partitions, self.of)


@dataclass(frozen=True)
class Block:
    """Records in the order of the stream; scheduled times in microseconds since the Unix epoch."""

    values: list[bytes]
    partitions: list[int]
    scheduled_us: NDArray[np.int64]


class Stream:
    """Records 0..records-1 of keys and schedule, starting at `start_us`; the same for any number of shares."""

    def __init__(self, keys: KeySampler, schedule: Schedule, start_us: int, records: int):
        if records < 0:
            raise GeneratorError(f"The number of records must be 0 or more, not {records}.")
        self.keys, self.schedule, self.start_us, self.records = keys, schedule, start_us, records

    def record(self, number: int) -> bytes:
        """Returns the value of one record."""
        return self._encode(np.array([number], np.int64), self.schedule.times_us(number, 1))[0]

    def blocks(self, share: Share, done: Sequence[int], size: int) -> Iterator[Block]:
        """Yields a share's records in blocks of at most `size`; done[p] records of partition p are there already."""
        due = np.asarray(done, np.int64) * share.partitions + np.arange(
            share.partitions
        )  # each partition's next record
        first = min(int(due[p]) for p in share.own_partitions())
        for low in range(first - first % share.of, self.records, size * share.of):
            count = min(size * share.of, self.records - low)
            index = np.arange(low + share.number, low + count, share.of, dtype=np.int64)
            partitions = partition_of(index, share.partitions)
            wanted = index >= due[partitions]
            times = self.schedule.times_us(low, count)[index - low]
            if wanted.any():
                yield Block(
                    self._encode(index[wanted], times[wanted]),
                    partitions[wanted].tolist(),
                    times[wanted] + self.start_us,
                )

    def due(self, share: Share, done: Sequence[int], at_us: int) -> int:
        """Returns how many of the share's records that are not done are scheduled at `at_us` or before."""
        until = min(self.records, self.schedule.records_until(at_us - self.start_us))
        return sum(max(0, len(range(p, until, share.partitions)) - done[p]) for p in share.own_partitions())

    def _encode(self, index: NDArray[np.int64], times: NDArray[np.int64]) -> list[bytes]:
        return split_block(encode_block(self.keys.at(index), times + self.start_us))
