"""The two clients of a query's control topic: the reader of commands and the sender of answers; for one thread each."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from impls.controltopic.pending import Answer
from impls.controltopic.topic import ControlTopic, quiet
from impls.protocol.jsontext import to_text

__all__ = ["AnswerSender", "CommandReader", "Record"]

_ASK_S = 2.0
_LOOK_S = 10.0  # between two looks for new partitions
_RECORDS_MOST = 500
_ANSWER_MS = 10_000
_UNKNOWN_MS = 5_000  # for which a topic may be unknown to the broker
_NEVER_TAKEN = {
    KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.MSG_SIZE_TOO_LARGE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the control topic: partition and offset, and its value, None for a tombstone."""

    at: tuple[int, int]
    value: bytes | None


class CommandReader:
    """connect() until `connected`, then take() again and again; a partition that is added later is read too.

    Attributes:
        trouble: why the broker cannot be reached, empty when it can.
    """

    def __init__(self, topic: ControlTopic):
        self._topic = topic
        self.trouble = ""
        self._consumer: Consumer | None = None
        self._partitions: set[int] = set()
        self._look = 0.0

    @property
    def connected(self) -> bool:
        """Whether there are partitions to read."""
        return bool(self._partitions)

    def connect(self, positions: Mapping[int, int]) -> bool:
        """Makes the topics that are missing and begins to read at these offsets, elsewhere at the beginning.

        Returns whether it is connected now.
        """
        try:
            _make_topics(self._topic)
            self._partitions = self._look_up()
        except KafkaException as error:
            self.trouble = str(error.args[0].str())
            return False
        self._opened().assign([self._place(part, positions.get(part, 0)) for part in sorted(self._partitions)])
        self.trouble, self._look = "", time.monotonic() + _LOOK_S
        return self.connected

    def take(self, timeout_s: float) -> list[Record]:
        """Returns the records that have come, after `timeout_s` at most when there are none."""
        try:
            if time.monotonic() > self._look:
                self._add_partitions()
            first = self._opened().poll(timeout_s)
            messages = [] if first is None else [first, *self._opened().consume(_RECORDS_MOST, 0)]
        except KafkaException as error:
            self.trouble = str(error.args[0].str())
            return []
        return [Record((m.partition(), m.offset()), m.value()) for m in messages if m.error() is None]

    def _add_partitions(self) -> None:
        self._look = time.monotonic() + _LOOK_S
        new = self._look_up() - self._partitions
        self.trouble = ""
        if new:
            self._opened().incremental_assign([self._place(part, 0) for part in sorted(new)])
            self._partitions |= new

    def _look_up(self) -> set[int]:
        return set(self._opened().list_topics(self._topic.topic, _ASK_S).topics[self._topic.topic].partitions)

    def _place(self, part: int, offset: int) -> TopicPartition:
        return TopicPartition(self._topic.topic, part, offset)

    def _opened(self) -> Consumer:
        if self._consumer is None:
            how = {"group.id": f"control-{self._topic.query}", "enable.auto.commit": False}
            more = {"auto.offset.reset": "earliest"}  # a topic that is made anew, or has lost its older records
            self._consumer = Consumer(quiet(self._topic.bootstrap, **how, **more))
        return self._consumer

    def close(self) -> None:
        """Ends the connection."""
        if self._consumer is not None:
            self._consumer.close()


class AnswerSender:
    """send() answers, an answer with an id as often as one likes; taken() says which of these need not come again."""

    def __init__(self, topic: ControlTopic):
        self._topic = topic
        self._producer: Producer | None = None
        self._under_way: set[str] = set()
        self._taken: list[str] = []

    def send(self, answer: Answer) -> None:
        """Hands an answer to the client, unless it is under way."""
        if answer.id in self._under_way:
            return

        def delivered(error: Any, _message: Any = None) -> None:
            self._under_way.discard(answer.id)
            if answer.id and (error is None or error.code() in _NEVER_TAKEN):
                self._taken.append(answer.id)

        if answer.id:
            self._under_way.add(answer.id)
        try:
            self._opened().produce(answer.topic, to_text(answer.value), answer.key, on_delivery=delivered)
        except BufferError:
            self._under_way.discard(answer.id)
        except KafkaException as error:
            delivered(error.args[0])

    def taken(self) -> list[str]:
        """Returns ids whose answers the broker has taken, or can never take, since the last call."""
        if self._producer is not None:
            self._producer.poll(0)
        taken, self._taken = self._taken, []
        return taken

    def flush(self, timeout_s: float) -> None:
        """Waits until nothing is under way, or the time is over."""
        if self._producer is not None:
            self._producer.flush(timeout_s)

    def _opened(self) -> Producer:
        if self._producer is None:
            how = {"enable.idempotence": True, "message.timeout.ms": _ANSWER_MS, "linger.ms": 1}
            how["topic.metadata.propagation.max.ms"] = _UNKNOWN_MS
            self._producer = Producer(quiet(self._topic.bootstrap, **how))
        return self._producer


def _make_topics(topic: ControlTopic) -> None:
    """Makes the control topic and the topic of answers where they are missing; raises KafkaException if refused."""
    admin = AdminClient(quiet(topic.bootstrap))
    there = admin.list_topics(timeout=_ASK_S).topics
    missing = [NewTopic(name, 1, -1) for name in (topic.topic, topic.answers) if name not in there]
    for made in admin.create_topics(missing, request_timeout=_ASK_S).values() if missing else ():
        try:
            made.result(_ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another query was faster
                raise
