"""A result that the broker refuses leaves no gap: nothing behind it is taken, and a reader sees what is sent again."""

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from impls.errors import StateError, UsageError
from impls.store.records import Results
from impls.worker.output import Output, close_producers
from impls.worker.results import ResultReader

SMALL, LARGE, MOST = 1_000, 150_000, 100_000  # bytes of results, and the most that the topic takes
N = 121
DEADLINE_S = 60


def most_bytes(kafka: str, topic: str, most: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(most), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": kafka})
    (answer,) = client.incremental_alter_configs([resource]).values()
    answer.result(DEADLINE_S)


def read(kafka: str, topic: str, partitions: int) -> list[tuple[int, int, int]]:
    """(epoch, index, bytes) of each result once."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "refused", "enable.auto.commit": False})
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    consumer.assign(places)
    left = sum(consumer.get_watermark_offsets(place, DEADLINE_S)[1] for place in places)
    messages = []
    while len(messages) < left:
        found = consumer.consume(left, DEADLINE_S)
        assert found, "the topic ends before its end"
        messages += [(m.partition(), m.headers(), m.key(), m.value()) for m in found]
    consumer.close()
    return [(r.number.epoch, r.number.index, len(r.value)) for r in ResultReader(messages)]


@pytest.mark.parametrize("place", [0, 60, N - 1])
def test_a_refused_result_in_the_midst_of_others_is_sent_again_with_all_behind_it(kafka, topic_factory, place):
    topic = topic_factory(1)
    most_bytes(kafka, topic, MOST)
    sizes = [LARGE if at == place else SMALL for at in range(N)]
    results = Results(np.zeros(N, np.int32), [b"k"] * N, [b"x" * size for size in sizes])
    output = Output(kafka, topic, 1, {"batch.size": str(10 * SMALL)})  # what is beside it goes in batches of its own
    with pytest.raises(StateError, match=f"one has {LARGE:,} bytes; for larger ones give the topic the setting max"):
        output.send(results, bins=2, worker=0, generation=1, epoch=5, first=0, commit=0)
    assert [index for _, index, _ in read(kafka, topic, 1)] == list(range(len(read(kafka, topic, 1))))
    most_bytes(kafka, topic, 2 * LARGE)
    output.send(results, bins=2, worker=0, generation=1, epoch=5, first=0, commit=0)
    assert read(kafka, topic, 1) == [(5, index, size) for index, size in enumerate(sizes)]
    close_producers()


def test_a_topic_with_fewer_partitions_than_the_output_says_is_refused(kafka, topic_factory):
    topic = topic_factory(2)
    with pytest.raises(UsageError, match=f"{topic} has 2 partitions, and Output says 4: give Output partitions=2"):
        Output(kafka, topic, 4).check()
    with pytest.raises(UsageError, match=f"no results topic not-there at {kafka}: make it with 4 partitions"):
        Output(kafka, "not-there", 4).check()
    Output(kafka, topic, 2).check()
    Output("localhost:1", topic, 2).check()
