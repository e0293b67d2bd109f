"""How far a query has read its Kafka source, and how far the source goes: what came, and what waits."""

import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from impls.autoscale.intervals import Look, PartitionOffsets
from impls.errors import StateError

_DEADLINE_S = 10.0
_PAUSE_S = 0.05
_NOT_YET = {  # said of a partition without a leader, by a broker that has just started, and of one added since
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_NEVER = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._INVALID_ARG}


def asking(settings: Mapping[str, str]) -> Consumer:
    """Returns a client for `end_offsets`, by librdkafka's settings for the broker; it says nothing by itself."""
    own = {"group.id": "rescale-bench", "enable.auto.commit": False, "log_level": 0, "error_cb": lambda _: None}
    return Consumer({**settings, **own})


def end_offsets(
    client: Consumer, places: Iterable[tuple[str, int]], within_s: float = _DEADLINE_S
) -> dict[tuple[str, int], int]:
    """Returns the offset behind the last record of partitions (topic, number).

    They are asked for one after another, 1 ms each, a partition that is not known yet again and again, the topic's
    partitions before it: a client that knew a topic before it grew goes on with those that it knew (librdkafka 2.16).
    The client for administration, which asks for all at once, answers one time in 20 after 3 s.

    Raises:
        StateError: the broker does not say in time.
    """
    return {place: end for place, (_, end) in ranges(client, places, within_s).items()}


def ends_to_read(client: Consumer, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Returns the same, and 0 for a partition of which nothing can be read, be it that retention has deleted all."""
    return {place: 0 if low == end else end for place, (low, end) in ranges(client, places).items()}


def ranges(
    client: Consumer, places: Iterable[tuple[str, int]], within_s: float = _DEADLINE_S
) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns (first offset that is kept, offset behind the last record) of partitions; raises as `end_offsets`."""
    deadline = time.monotonic() + within_s
    try:
        return {place: _range_of(client, TopicPartition(*place), deadline) for place in places}
    except KafkaException as error:
        raise StateError(f"The broker does not say how far its topics go: {error.args[0].str()}.") from error


def _range_of(client: Consumer, place: TopicPartition, deadline: float) -> tuple[int, int]:
    asked = False
    while True:
        try:
            if asked:
                client.list_topics(place.topic, _left(deadline))
            low, high = client.get_watermark_offsets(place, _left(deadline))
            return int(low), int(high)
        except KafkaException as error:
            if not _passes(error.args[0].code()) or time.monotonic() > deadline:
                raise
        asked = True
        time.sleep(_PAUSE_S)


def _passes(code: int) -> bool:
    """Returns whether an error may pass: the client's own, below 0, are many when a broker is being started again."""
    return code in _NOT_YET or (code < 0 and code not in _NEVER)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


class Consumed(Protocol):
    """Tells how far a query has read its source."""

    def __call__(self, epoch: int, since: Mapping[int, int] | None = None) -> PartitionOffsets:
        """Returns the offsets behind what an epoch and all before it have read, {} where nobody knows yet.

        Args:
            epoch: the epoch.
            since: in real time, by partition of the input, later offsets behind what workers have applied since.
        """


class Arrivals:
    """look() asks the broker, consumed() what Spark has noted.

    Args:
        settings: librdkafka's for the source's broker.
        consumed: tells how far the source was read.
        behind: epochs that have to end behind one until that is known.
    """

    def __init__(self, settings: Mapping[str, str], consumed: Consumed, *, behind: int = 0):
        self.consumed, self.behind = consumed, behind
        self._settings = dict(settings)
        self._client: Consumer | None = None

    def look(self, places: Iterable[tuple[str, int]]) -> Look:
        """Returns how far partitions of the source go now; raises StateError when the broker does not say in 10 s."""
        self._client = self._client or asking(self._settings)
        begun = time.monotonic_ns()
        ends = end_offsets(self._client, places)
        return Look((begun + time.monotonic_ns()) / 2e9, ends)
