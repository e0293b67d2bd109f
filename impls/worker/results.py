"""Results on their way to Kafka: numbered, stored with the state, sent behind the commit, and read exactly once.

A worker that is run again sends its results again, so a raw results topic may hold repeats. Every result carries a
number in the header `n`; for one worker in one partition numbers rise by (epoch, index), and the same number always
means the same result. Dropping what is not above the last number seen leaves each result once and each key in order.
"""

import contextlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from impls.errors import StateError
from impls.store.records import Results

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


_SEND_DEADLINE_S = 60.0
_CONNECT_DEADLINE_S = 5.0
_producers: dict[tuple[tuple[str, Any], ...], Producer] = {}


@dataclass(frozen=True)
class Output:
    """A Kafka topic for results; the broker acknowledges them before an epoch ends, in real time before a turn's end.

    Guarantee: each result exactly once and each key's in order for a reader with `impls.worker.results.Deduplicator`.
    Results are stored with the state and sent behind the commit; after a crash they are sent again, so the raw topic
    may hold repeats. Each carries a number in its header, and the same number always means the same result.

    Attributes:
        bootstrap: broker addresses.
        topic: the results topic; a bin's results go to partition bin * partitions // bins, so that a
            worker with a range of bins sends to few of them.
        partitions: its number of partitions.
        options: further librdkafka producer settings.
    """

    bootstrap: str
    topic: str
    partitions: int
    options: dict[str, str] = field(default_factory=dict)

    def connect(self) -> None:
        """Connects this process to the broker, as far as that goes in 5 s: what does not work is seen by `send`."""
        with contextlib.suppress(KafkaException):
            _producer(self).list_topics(self.topic, _CONNECT_DEADLINE_S)

    def send(self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int = 0) -> None:
        """Sends results of a query with `bins` bins, numbered from `first`, and returns when all are acknowledged.

        Raises StateError if it has not in 60 s.
        """
        if not results.keys:
            return
        producer, failed = _producer(self), []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(_reason(error, message.value()))

        partitions = (results.bins.astype(np.int64) * self.partitions // bins).tolist()
        numbers = numbers_of(worker, generation, epoch, len(partitions), first=first)
        for partition, key, value, number in zip(partitions, results.keys, results.payloads, numbers, strict=True):
            while True:
                try:
                    producer.produce(
                        self.topic, value, key, partition, on_delivery=delivered, headers=[(HEADER, number)]
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    why = _reason(error.args[0], value)
                    raise StateError(f"Results cannot be sent to topic {self.topic}: {why}.") from error
        left = producer.flush(_SEND_DEADLINE_S)
        if left or failed:
            _producers.clear()
            total = len(results.keys)
            reason = failed[0] if failed else f"{left} of {total} not acknowledged in {_SEND_DEADLINE_S:.0f} s"
            raise StateError(f"Results of epoch {epoch} were not taken by {self.bootstrap}: {reason}.")


def _reason(error: KafkaError, value: bytes) -> str:
    """Returns why a result is not taken, and what lets a large one through."""
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return str(error)
    most = 2 * len(value)
    return (
        f"one has {len(value):,} bytes; for larger ones give the topic the setting max.message.bytes={most} and Output "
        f'the options {{"message.max.bytes": "{most}"}}'
    )


def _producer(output: Output) -> Producer:
    settings = {
        "bootstrap.servers": output.bootstrap,
        "enable.idempotence": "true",
        "linger.ms": "5",  # flush() does not wait for it; with 0 the first results of an epoch go one by one
        "delivery.report.only.error": True,
        "batch.num.messages": "100000",
        "queue.buffering.max.messages": "1000000",
        **output.options,
    }
    name = tuple(sorted(settings.items()))
    if name not in _producers:
        _producers[name] = Producer(dict(settings))
    return _producers[name]


def close_producers() -> None:
    """Ends this process's producers; they would log errors about a broker that is gone."""
    _producers.clear()
