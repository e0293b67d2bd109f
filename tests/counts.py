"""Records for a key-count, and what its results say that it has counted."""

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from pipeline import await_true
from real_time import KEYS
from topics import producer_for

from generators.clock import now_us
from generators.stream import keycount_values
from impls.worker.results import Deduplicator, number_of

DEADLINE_S = 120.0


class Counts:
    """Sends records, and reads the results: of each key the counts 1..n, each once."""

    def __init__(self, kafka: str, topics: tuple[str, str]):
        self.input, self.sent = topics[0], 0
        self._producer = producer_for(kafka)
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "real-time", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topics[1], partition, 0) for partition in range(4)])
        self._seen, self.last = Deduplicator(), {}
        self._ends: dict[int, dict[bytes, int]] = {}  # by epoch, the highest count of each key that it counted

    def send(self, records: int, partitions: tuple[int, ...] = (0, 1)) -> None:
        keys = np.random.default_rng(self.sent).integers(0, KEYS, records)
        values = keycount_values(keys, np.full(records, now_us(), np.int64))
        for i, value in enumerate(values):
            self._producer.produce(self.input, value, partition=partitions[i % len(partitions)])
        assert self._producer.flush(30) == 0
        self.sent += records

    def counted(self) -> int:
        """Records counted, as the results that have come say."""
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            n = number_of(message.headers())
            if self._seen.accept(message.partition(), n):
                count = int.from_bytes(message.value(), "little")
                assert count > self.last.get(message.key(), 0), "a count that does not grow"
                self.last[message.key()] = self._ends.setdefault(n.epoch, {})[message.key()] = count
        return sum(self.last.values())

    def at_end(self, epoch: int) -> dict[int, int]:
        """The counts of all keys that have one at the end of an epoch, when all its results have come."""
        found: dict[bytes, int] = {}
        for one in sorted(self._ends):
            found |= self._ends[one] if one <= epoch else {}
        return {int.from_bytes(key, "big", signed=True): count for key, count in found.items()}

    def await_counted(self) -> None:
        """Waits until all records sent are counted; none may be counted twice."""
        await_true(lambda: self.counted() >= self.sent, f"{self.sent} records to be counted", DEADLINE_S)
        assert self.counted() == self.sent

    def send_and_await(self, *records) -> None:
        """Sends records, as `send` does, and waits until all that were sent are counted."""
        self.send(*records)
        self.await_counted()

    def close(self) -> None:
        self._consumer.close()
