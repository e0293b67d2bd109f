"""Numbers of results, and how a results topic is read: each result once, and each key's in order.

A worker that is run again sends its results again, so a raw results topic may hold repeats. Every result carries a
number in the header `n`; for one worker of one query in one partition numbers rise by (epoch, index), and the same
number always means the same result. Dropping what is not above the last number seen leaves each result once and each
key in order. Numbers of a worker have no gaps in an epoch: behind a result that the broker refuses it sends none.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

HEADER = "n"
NUMBER = struct.Struct("<QHIIQI")
_ROW = np.dtype([
    ("query", "<u8"), ("worker", "<u2"), ("generation", "<u4"), ("epoch", "<u4"), ("index", "<u8"), ("commit", "<u4"),
])  # fmt: skip
"""NUMBER as columns."""
_FORMER = struct.Struct("<HIII")  # of version 0.1.0: without query and commit

Headers = Sequence[tuple[str, bytes | str | None]] | None
Message = tuple[int, Headers, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Number:
    """What the header of a result says.

    Attributes:
        query: number of the query, see `query_number`.
        worker, generation, epoch: who sent it, and when.
        index: its place among the worker's results of the epoch, which goes on from commit to commit.
        commit: the worker's commit in the epoch, of which there is one in micro-batches.
    """

    query: int
    worker: int
    generation: int
    epoch: int
    index: int
    commit: int = 0

    @property
    def source(self) -> tuple[int, int]:
        """Query and worker, whose numbers rise in each partition."""
        return self.query, self.worker


@dataclass(frozen=True, slots=True)
class Result:
    """One result: the partition it came from, its number, the record key and the operator's payload."""

    partition: int
    number: Number
    key: bytes | None
    value: bytes | None


def query_number(query: str) -> int:
    """Returns the 64 bits by which results name a query, from the identity that its checkpoint has; 0 for none."""
    return int.from_bytes(hashlib.blake2b(query.encode(), digest_size=8).digest(), "little") if query else 0


def numbers_of(first: Number, results: int) -> list[bytes]:
    """Returns the headers' values of so many results in order, the first of which has a given number."""
    rows = np.empty(results, _ROW)
    for name in _ROW.fields or ():
        rows[name] = getattr(first, name)
    rows["index"] += np.arange(results, dtype=np.uint64)
    return rows.view(f"V{NUMBER.size}").tolist()


def number_of(headers: Headers) -> Number | None:
    """Returns the number in a message's headers, None where it has none: another program has written it."""
    for name, value in headers or ():
        if name == HEADER and isinstance(value, bytes):
            if len(value) == NUMBER.size:
                return Number(*NUMBER.unpack(value))
            if len(value) == _FORMER.size:
                return Number(0, *_FORMER.unpack(value))
    return None


class Deduplicator:
    """Remembers the last (epoch, index) of each query, worker and partition and refuses what is not above it.

    `last` may be stored and given back to go on where an earlier reader stopped.

    >>> reader = Deduplicator()
    >>> [reader.accept(0, Number(1, 7, 1, epoch, index)) for epoch, index in [(1, 0), (1, 1), (1, 0), (1, 1), (2, 0)]]
    [True, True, False, False, True]
    """

    def __init__(self, last: Mapping[tuple[int, ...], tuple[int, int]] | None = None) -> None:
        """Goes on with what was stored; of version 0.1.0, whose results name no query, (worker, partition)."""
        stored = (last or {}).items()
        self.last = {((0, *source) if len(source) == 2 else source): place for source, place in stored}

    def accept(self, partition: int, number: Number) -> bool:
        """Returns whether a result is new, and remembers it; False for a repeat."""
        source, place = (*number.source, partition), (number.epoch, number.index)
        if source in self.last and place <= self.last[source]:
            return False
        self.last[source] = place
        return True


class ResultReader:
    """Iterates over the results of a topic, each once; works with the messages of any Kafka client.

    Messages are (partition, headers, key, value), in offset order within each partition. What has no number is no
    result, and passed over. Results of several queries may be in one topic; `Result.number.query` tells them apart.
    """

    def __init__(self, messages: Iterable[Message], deduplicator: Deduplicator | None = None) -> None:
        self._messages = messages
        self.deduplicator = deduplicator or Deduplicator()

    def __iter__(self) -> Iterator[Result]:
        for partition, headers, key, value in self._messages:
            number = number_of(headers)
            if number is not None and self.deduplicator.accept(partition, number):
                yield Result(partition, number, key, value)
