"""How far a query has read its Kafka source, and how far the source goes: what came, and what waits."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from impls.autoscale.intervals import Look, Offsets
from impls.errors import StateError

__all__ = ["Arrivals", "read_by_epochs", "read_by_ticks"]

_DEADLINE_S = 10.0


class Arrivals:
    """look() asks the broker, consumed() the files of Spark's checkpoint.

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


def read_by_epochs(location: str) -> Callable[[int], Offsets]:
    """Returns what reads Spark's offset log in a checkpoint of micro-batches: `offsets/EPOCH` is where an epoch ends.

    The file has a line per source behind two others. A line that is no Kafka source's is passed over.
    """

    def consumed(epoch: int) -> Offsets:
        try:
            lines = (Path(location) / "offsets" / str(epoch)).read_text().splitlines()
        except OSError:
            return {}
        found: dict[tuple[str, int], int] = {}
        for topics in filter(None, map(_topics, lines)):
            for topic, ends in topics.items():
                for partition, end in ends.items():
                    place = (topic, int(partition))
                    found[place] = min(found.get(place, end), end)  # several sources may read one topic
        return found

    return consumed


def read_by_ticks(location: str) -> Callable[[int], Offsets]:
    """Returns what reads, in real time, the offsets behind a tick when the next one has ended.

    Then the runner has stored them, see `impls.spark.realtime.inputlog`. They are by partition; the topic is the one
    of which Spark's source noted the begin.
    """

    def consumed(_tick: int) -> Offsets:
        try:
            needed = json.loads((Path(location) / "needed-offsets.json").read_text())
            lines = (Path(location) / "sources" / "0" / "0").read_text().splitlines()
        except (OSError, ValueError):
            return {}
        if not _are_offsets(needed):
            return {}
        topic = next((topic for topics in filter(None, map(_topics, lines)) for topic in topics), None)
        return {(topic, int(partition)): at for partition, at in needed.items()} if topic is not None else {}

    return consumed


def _topics(line: str) -> dict[str, dict[str, int]] | None:
    """Returns the offsets by topic of a line that is a Kafka source's, None for another one."""
    try:
        data: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(data, dict) or not data or not all(_are_offsets(ends) for ends in data.values()):
        return None
    return data


def _are_offsets(ends: Any) -> bool:
    return isinstance(ends, dict) and all(key.isdigit() and isinstance(at, int) for key, at in ends.items())
