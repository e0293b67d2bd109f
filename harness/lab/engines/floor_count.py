"""The program of `kafka-floor`, which needs Kafka's client alone: floor_count.py BROKER GROUP RESULTS TOPIC...

A record's value is 16 digits of the key and 16 of its scheduled time in µs, as `generators.stream` writes it; one of
time 0 makes state and has no result. A result is key and count, as decimal text. The group commits what was read, for
whoever wants to know how far that is; a process that starts reads everything.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

_DIGITS = 16
_ASK_S = 10.0
_COMMIT_S = 1.0
_POLL_S = 0.1


class FloorCounts:
    """of() counts a record."""

    def __init__(self) -> None:
        self._counts: defaultdict[bytes, int] = defaultdict(int)

    def of(self, value: bytes) -> tuple[str, str] | None:
        """Returns key and count of a record that has a result, None for one that makes state.

        >>> counts = FloorCounts()
        >>> counts.of(b"%016d%016d" % (7, 0)), counts.of(b"%016d%016d" % (7, 5))
        (None, ('7', '2'))
        """
        key = value[:_DIGITS]
        self._counts[key] += 1
        return (str(int(key)), str(self._counts[key])) if value[_DIGITS:].strip(b"0") else None


def _consumer(bootstrap: str, group: str, topics: Sequence[str]) -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    known = consumer.list_topics(timeout=_ASK_S).topics
    places = [(topic, number) for topic in topics for number in known[topic].partitions]
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    return consumer


def _send(producer: Producer, topic: str, key: str, count: str) -> None:
    while True:
        try:
            producer.produce(topic, count, key, on_delivery=_delivered)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            return


def _value(message: Message | None) -> bytes | None:
    """Returns a record's value, None where there is none, or the broker is away for a while."""
    if message is None:
        return None
    if (error := message.error()) is not None:
        if error.fatal():
            raise SystemExit(f"The input cannot be read: {error.str()}.")
        return None
    value: bytes | None = message.value()
    return value


def _delivered(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise SystemExit(f"A result was not taken: {error.str()}.")


def main(bootstrap: str, group: str, results: str, *topics: str) -> None:
    """Counts until the process ends; raises SystemExit where the broker refuses to be read."""
    consumer, counts = _consumer(bootstrap, group, topics), FloorCounts()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "enable.idempotence": True})
    due, new = time.monotonic(), False
    while True:
        value = _value(consumer.poll(_POLL_S))
        if value is not None and (result := counts.of(value)) is not None:
            _send(producer, results, *result)
        producer.poll(0)
        new = new or value is not None
        if new and time.monotonic() > due:
            producer.flush()  # what is committed has its results
            consumer.commit(asynchronous=True)
            due, new = time.monotonic() + _COMMIT_S, False


if __name__ == "__main__":
    main(*sys.argv[1:])
