"""How far a query has read its Kafka source, and how far the source goes: what came, and what waits."""

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from impls.autoscale.intervals import Look, Offsets
from impls.errors import StateError

__all__ = ["Arrivals"]

_DEADLINE_S = 10.0


class Arrivals:
    """look() asks the broker, consumed() what Spark has noted.

    Args:
        settings: librdkafka's for the source's broker.
        consumed: returns the offsets behind what an epoch and all before it have read.
        behind: epochs that have to end behind one until that is known.
    """

    def __init__(self, settings: Mapping[str, str], consumed: Callable[[int], Offsets], *, behind: int = 0):
        self.consumed, self.behind = consumed, behind
        self._settings = {**settings, "log_level": 0, "error_cb": lambda _: None}
        self._admin: AdminClient | None = None

    def look(self, places: Iterable[tuple[str, int]]) -> Look:
        """Returns how far partitions of the source go now; raises StateError when the broker does not say in 10 s."""
        self._admin = self._admin or AdminClient(self._settings)
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for topic, partition in places}
        try:
            told = self._admin.list_offsets(asked, request_timeout=_DEADLINE_S) if asked else {}
            ends = {(place.topic, place.partition): one.result(_DEADLINE_S).offset for place, one in told.items()}
        except (KafkaException, TimeoutError) as error:
            raise StateError(f"The broker of the source does not say how far it goes: {error}.") from error
        return Look(time.time_ns() / 1e9, ends)
