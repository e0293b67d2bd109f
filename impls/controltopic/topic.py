"""A Kafka topic with commands, as a user names it; its connections; where in the input a time begins."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from impls.brokers import check_settings, quiet
from impls.controltopic.commands import Offsets
from impls.errors import UsageError


@dataclass(frozen=True)
class ControlTopic:
    """A control topic that a query obeys.

    Attributes:
        bootstrap: broker addresses of the topic.
        topic: its name; it is made with one partition if it is not there, and so is the topic of answers.
        query: the query's name, by which commands address it.
        inputs: broker addresses of the query's input, where they are others.
        options: further librdkafka settings of a client of these brokers, such as those of SASL and TLS.
        answer_topics: topics, besides the usual one, that a command may name for its answers.
    """

    bootstrap: str
    topic: str
    query: str
    inputs: str = ""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    answer_topics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.query:
            raise UsageError("A query on a control topic needs a name, by which commands address it.")
        if not self.topic or not self.bootstrap:
            raise UsageError("A control topic needs a name and the addresses of its broker.")
        if self.options:
            check_settings(self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a client of its broker, see `quiet`."""
        return quiet(self.bootstrap, self.options)

    @property
    def answers(self) -> str:
        """The topic of the answers to commands that name none."""
        return answers_of(self.topic)


def answers_of(topic: str) -> str:
    """Returns the topic of the answers to a control topic's commands that name none."""
    return f"{topic}-answers"


_ASK_S = 1.0
_PAUSE_S = 5.0
_AHEAD_MS = 60_000  # by which a clock that stamps records may be ahead of this one; nobody asks before


class TimeFinder:
    """Asks the broker of the input for the offsets of times; for one thread, which may close it.

    A broker that does not answer in a second is asked again after 5 s, so that its absence costs a query little.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, str]):
        self._settings = quiet(bootstrap, options)
        self._consumer: Consumer | None = None
        self._again = 0.0

    def find(self, time_ms: int, begin: Offsets) -> Offsets | None:
        """Returns, for every partition of `begin`, the first offset with a record of this time or later.

        None when a partition has no such record yet, or the broker does not answer.
        """
        early = time_ms > time.time_ns() // 1_000_000 + _AHEAD_MS
        if early or time.monotonic() < self._again:
            return None
        places = [TopicPartition(topic, part, time_ms) for topic, parts in begin.items() for part in parts]
        try:
            found = self._opened().offsets_for_times(places, timeout=_ASK_S)
        except KafkaException:
            self._again = time.monotonic() + _PAUSE_S
            return None
        if any(place.error is not None or place.offset == OFFSET_END for place in found):
            return None
        offsets: Offsets = {topic: {} for topic in begin}
        for place in found:
            offsets[place.topic][place.partition] = place.offset
        return offsets

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer({**self._settings, "group.id": "control-times", "enable.auto.commit": False})
        return self._consumer

    def close(self) -> None:
        """Ends the connection."""
        if self._consumer is not None:
            self._consumer.close()
