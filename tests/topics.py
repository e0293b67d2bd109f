"""Topics of the tests' broker: a producer for all who send, and what a topic holds."""

import time
from functools import cache

from confluent_kafka import Producer, TopicPartition

DEADLINE_S = 60


@cache
def producer_for(kafka):
    """The one producer of this process: a new one waits half a second for its number. `kafka` ends it."""
    return Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 1, "log_level": 2})


def json_rows(spark, kafka, topic, fields):
    """A topic's JSON values as rows of `fields` (DDL) with their partition and offset, from the first record on."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka).option("subscribe", topic)
    rows = source.option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr(f"from_json(string(value), '{fields}') r", "partition", "offset")
    return parsed.select("r.*", "partition", "offset")


def ends(consumer, topic, partitions=2):
    return [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(partitions)]


def contents(consumer, topic, partitions=2):
    """Values of each partition of the topic, in the order of their offsets."""
    wanted = sum(ends(consumer, topic, partitions))
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    out = [[] for _ in range(partitions)]
    end = time.monotonic() + DEADLINE_S
    while sum(map(len, out)) < wanted:
        assert time.monotonic() < end, f"only {sum(map(len, out))} of {wanted} records could be read"
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None
            assert message.key() is None
            out[message.partition()].append(message.value())
    return out
