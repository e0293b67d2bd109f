"""What a topic already holds of a stream, so that a producer starts at the right record or refuses."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from generators.errors import GeneratorError
from generators.stream import RecordStream, Share

__all__ = ["records_present"]

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
    while not (found := len(consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic].partitions)):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    if not found:
        raise GeneratorError(
            f"The topic {topic!r} does not exist at {bootstrap}: create it with {partitions} partitions."
        )
    if found != partitions:
        raise GeneratorError(f"The topic {topic!r} has {found} partitions, not {partitions}: use another topic.")


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
