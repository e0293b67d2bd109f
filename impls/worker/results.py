"""Reading results exactly once: the numbers in their headers, and the reader that drops repeats.

A worker that is run again sends its results again, so a raw results topic may hold repeats. Every result carries a
number in the header `n`; for one worker in one partition numbers rise by (epoch, index), and the same number always
means the same result. Dropping what is not above the last number seen leaves each result once and each key in order.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["HEADER", "NUMBER", "Deduplicator", "Number", "Result", "ResultReader", "number_of", "numbers_of"]

HEADER = "n"
NUMBER = struct.Struct("<HIII")
_ROW = np.dtype([("worker", "<u2"), ("generation", "<u4"), ("epoch", "<u4"), ("index", "<u4")])  # NUMBER as columns

Headers = Sequence[tuple[str, bytes]]
Message = tuple[int, Headers, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Number:
    """What the header of a result says: who sent it, in which generation and epoch, and its place in that epoch."""

    worker: int
    generation: int
    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """One result: the partition it came from, its number, the record key and the operator's payload."""

    partition: int
    number: Number
    key: bytes
    value: bytes


def numbers_of(worker: int, generation: int, epoch: int, results: int, *, first: int = 0) -> list[bytes]:
    """Returns the headers' values of a worker's results of an epoch, in order, the index beginning with `first`."""
    rows = np.empty(results, _ROW)
    rows["worker"], rows["generation"], rows["epoch"], rows["index"] = (
        worker,
        generation,
        epoch,
        first + np.arange(results),
    )
    return rows.view(f"V{NUMBER.size}").tolist()


def number_of(headers: Headers) -> Number:
    """Returns the number in a result's headers; raises ValueError when it has none: another program then wrote it."""
    for name, value in headers:
        if name == HEADER and len(value) == NUMBER.size:
            return Number(*NUMBER.unpack(value))
    raise ValueError(f"A message without a {NUMBER.size}-byte header {HEADER!r} is not a result of this pipeline.")


class Deduplicator:
    """Remembers the last (epoch, index) of each (worker, partition) and refuses what is not above it.

    `last` may be stored and given back to go on where an earlier reader stopped.

    >>> reader = Deduplicator()
    >>> [reader.accept(0, 7, epoch, index) for epoch, index in [(1, 0), (1, 1), (1, 0), (1, 1), (2, 0)]]
    [True, True, False, False, True]
    """

    def __init__(self, last: dict[tuple[int, int], tuple[int, int]] | None = None) -> None:
        self.last = dict(last or {})

    def accept(self, partition: int, worker: int, epoch: int, index: int) -> bool:
        """Returns whether a result is new, and remembers it; False for a repeat."""
        source, number = (worker, partition), (epoch, index)
        if source in self.last and number <= self.last[source]:
            return False
        self.last[source] = number
        return True


class ResultReader:
    """Iterates over the results of a topic, each once; works with the messages of any Kafka client.

    Messages are (partition, headers, key, value), in offset order within each partition. Raises ValueError at a
    message without a number.
    """

    def __init__(self, messages: Iterable[Message], deduplicator: Deduplicator | None = None) -> None:
        self._messages = messages
        self.deduplicator = deduplicator or Deduplicator()

    def __iter__(self) -> Iterator[Result]:
        for partition, headers, key, value in self._messages:
            number = number_of(headers)
            if self.deduplicator.accept(partition, number.worker, number.epoch, number.index):
                yield Result(partition, number, key, value)
