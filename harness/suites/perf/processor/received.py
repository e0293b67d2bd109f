"""The results of one side as its topic has them: when the broker appended each, and what it says."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from confluent_kafka import Consumer, TopicPartition
from numpy.typing import NDArray

from impls.errors import StateError

__all__ = ["Received", "Results", "check_counts"]

_CHUNK = 50_000
_ASK_S = 10.0


@dataclass(frozen=True)
class Results:
    """Of each result when the broker appended it, and the scheduled time of its record."""

    appended_ms: NDArray[np.int64]
    scheduled_us: NDArray[np.int64]


class Received:
    """Reads a results topic of the counter; take() raises what `check_counts` does.

    Attributes:
        counted: results taken.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int):
        settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer(settings)
        self._next = dict.fromkeys(range(partitions), 0)
        self._topic, self.counted = topic, 0
        self._counts: dict[int, list[int]] = defaultdict(list)

    def there(self) -> int:
        """Returns how many results the topic has."""
        return sum(self._ends().values())

    def _ends(self) -> dict[int, int]:
        places = {number: TopicPartition(self._topic, number) for number in self._next}
        return {n: int(self._consumer.get_watermark_offsets(place, _ASK_S)[1]) for n, place in places.items()}

    def close(self) -> None:
        """Frees the consumer."""
        self._consumer.close()

    def skip(self) -> None:
        """Passes over all results there are, those that made the state: a count of 1 for each key."""
        self._next = self._ends()

    def take(self) -> Results:
        """Returns the results since the last call."""
        ends, appended, scheduled = self._ends(), [], []
        self._consumer.assign([TopicPartition(self._topic, number, at) for number, at in self._next.items()])
        while any(self._next[number] < end for number, end in ends.items()):
            for message in self._consumer.consume(_CHUNK, 1.0):
                if message.error() is not None:
                    raise StateError(f"The results of {self._topic} cannot be read: {message.error()}.")
                value = orjson.loads(message.value())
                self._counts[value["key"]].append(value["count"])
                appended.append(message.timestamp()[1])
                scheduled.append(value["scheduled_us"])
                self._next[message.partition()] = message.offset() + 1
        self.counted += len(appended)
        check_counts(self._topic, self._counts)
        return Results(np.array(appended, np.int64), np.array(scheduled, np.int64))


def check_counts(topic: str, counts: Mapping[int, Sequence[int]]) -> None:
    """Raises StateError unless each key's counts go on one by one behind the 1 that made its state."""
    for key, found in counts.items():
        if sorted(found) != list(range(2, len(found) + 2)):
            raise StateError(f"The counts of key {key} in {topic} are {sorted(found)[:10]}, not 2, 3, ...")
