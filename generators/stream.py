"""The part of a stream that one producer process sends, in blocks made ahead of time; the key-count stream.

A key-count record's value is 32 decimal digits: 16 of its key, 16 of its scheduled time in microseconds since the Unix
epoch. Spark makes a long of such a text in 0.5 µs; of eight bytes, by way of `conv`, in 3 µs.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition
from numpy.typing import NDArray

from generators.keys import KeySampler
from generators.rates import Schedule
from generators.spec import GeneratorError

BLOCK_RECORDS = 4096  # that a producer makes at a time
NUMBER_BYTES = 16
_RECORD_BYTES = 2 * NUMBER_BYTES
_FOUR_DIGITS = np.array([b"%04d" % number for number in range(10_000)], "S4")


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


class RecordStream(ABC):
    """A stream of `preload` records that come before the clock starts and `records` that are due behind `start_us`.

    Records are numbered through, the preload from 0; record i goes to partition i modulo their number. A preload is
    sent as fast as it goes and is part of no figure. The same for any number of shares.

    Raises:
        GeneratorError: a number of records below 0.
    """

    preload = 0

    def __init__(self, start_us: int, records: int):
        if records < 0:
            raise GeneratorError(f"The number of records must be 0 or more, not {records}.")
        self.start_us, self.records = start_us, records

    @property
    def total(self) -> int:
        """Returns how many records there are, the preload included."""
        return self.preload + self.records

    def record(self, number: int) -> bytes:
        """Returns the value of one record."""
        return self._make(number, 1, np.zeros(1, np.int64))[0][0]

    def blocks(self, share: Share, done: Sequence[int], size: int, end: int | None = None) -> Iterator[Block]:
        """Yields a share's records in blocks of at most `size`, up to the one numbered `end`, or all.

        done[p] records of partition p are there already.
        """
        end = self.total if end is None else end
        places = np.asarray(done, np.int64)
        due = places * share.partitions + np.arange(share.partitions)  # each partition's next record
        first = min(int(due[p]) for p in share.own_partitions())
        for low in range(first - first % share.of, end, size * share.of):
            count = min(size * share.of, end - low)
            index = np.arange(low + share.number, low + count, share.of, dtype=np.int64)
            partitions = index % share.partitions
            wanted = index >= due[partitions]
            if wanted.any():
                values, times = self._make(low, count, (index - low)[wanted])
                yield Block(values, partitions[wanted].tolist(), times)

    def records_left(self, share: Share, done: Sequence[int], at_us: int) -> int:
        """Returns how many of the share's records that are not done are scheduled at `at_us` or before."""
        until = min(self.total, self.preload + self._scheduled_until(at_us - self.start_us))
        return sum(max(0, len(range(p, until, share.partitions)) - done[p]) for p in share.own_partitions())

    @abstractmethod
    def _make(self, low: int, count: int, chosen: NDArray[np.int64]) -> tuple[list[bytes], NDArray[np.int64]]:
        """Returns values and scheduled times of the chosen ones (from 0) of records low..low+count-1."""

    @abstractmethod
    def _scheduled_until(self, offset_us: int) -> int:
        """Returns how many records behind the preload are due `offset_us` after the start or before."""


def keycount_values(keys: NDArray[np.int64], scheduled_us: NDArray[np.int64]) -> list[bytes]:
    """Returns the values of records.

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
    block = groups.tobytes()
    return [block[at : at + _RECORD_BYTES] for at in range(0, len(block), _RECORD_BYTES)]


class Stream(RecordStream):
    """The key-count stream: records 0..records-1 of keys and schedule, starting at `start_us`."""

    def __init__(self, keys: KeySampler, schedule: Schedule, start_us: int, records: int):
        super().__init__(start_us, records)
        self.keys, self.schedule = keys, schedule

    def _make(self, low: int, count: int, chosen: NDArray[np.int64]) -> tuple[list[bytes], NDArray[np.int64]]:
        times = self.schedule.times_us(low, count)[chosen] + self.start_us
        return keycount_values(self.keys.at(low + chosen), times), times

    def _scheduled_until(self, offset_us: int) -> int:
        return self.schedule.records_until(offset_us)


_DEADLINE_S = 10.0
_NEW_TOPIC_S = 5.0  # from a topic's creation until every broker knows it


def records_present(bootstrap: str, topic: str, stream: RecordStream, share: Share, *, resume: bool) -> list[int]:
    """Returns how many records each partition of the topic holds, at the share's own partitions; 0 at the others.

    Partition p holds the records i with i % partitions == p from the first on, because one idempotent producer wrote
    them in order, so its end offset names its next record.

    Raises:
        GeneratorError: no answer in 10 s, no such topic, another number of partitions, records without `resume`, or
            with it a partition that does not end with this stream's record.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "generator", "enable.auto.commit": False, "log_level": 2}
    )
    present = [0] * share.partitions
    try:
        _check_partitions(consumer, bootstrap, topic, share.partitions)
        for partition in share.own_partitions():
            end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_DEADLINE_S)[1]
            present[partition] = int(end)
            if end and not resume:
                raise GeneratorError(f"The topic {topic!r} holds records already: resume, or use another topic.")
            if end:
                number = (int(end) - 1) * share.partitions + partition
                expected = stream.record(number) if number < stream.total else None
                _check_record(consumer, TopicPartition(topic, partition, int(end) - 1), number, expected)
    except KafkaException as error:
        reason = error.args[0].str()
        raise GeneratorError(
            f"The broker {bootstrap} does not answer within {_DEADLINE_S:g} s ({reason}): check its address."
        ) from error
    finally:
        consumer.close()
    return present


def _check_partitions(consumer: Any, bootstrap: str, topic: str, partitions: int) -> None:
    end = time.monotonic() + _NEW_TOPIC_S
    while not (partitions_there := len(consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic].partitions)):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    if not partitions_there:
        raise GeneratorError(
            f"The topic {topic!r} does not exist at {bootstrap}: create it with {partitions} partitions."
        )
    if partitions_there != partitions:
        raise GeneratorError(
            f"The topic {topic!r} has {partitions_there} partitions, not {partitions}: use another topic."
        )


def _check_record(consumer: Any, place: Any, number: int, expected: bytes | None) -> None:
    if _read(consumer, place) != expected:
        raise GeneratorError(
            f"Partition {place.partition} of the topic {place.topic!r} ends with another record than number {number} "
            "of this stream: resume with the parameters of the first start, or use another topic."
        )


def _read(consumer: Any, place: Any) -> bytes:
    """Returns the value of one record."""
    consumer.assign([place])
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            return bytes(message.value())
    where = f"{place.topic}-{place.partition}"
    raise GeneratorError(f"Offset {place.offset} of {where} cannot be read within {_DEADLINE_S:g} s: check the broker.")
