"""Clients of a control topic: a query's reader of commands and sender of answers, and a user's sender of commands."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from impls.brokers import check_settings, quiet
from impls.closing import Closing
from impls.controltopic.pending import SendAnswer
from impls.controltopic.topic import ControlTopic, answers_of
from impls.driver.arrivals import end_offsets
from impls.driver.topicids import ids_of
from impls.errors import StateError, UsageError
from impls.protocol.jsontext import from_text, to_text

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

    def topic_id(self) -> str:
        """Returns the broker's id of the topic, "" where it does not say it in time or has no such topic."""
        return ids_of(self._topic.settings, [self._topic.topic], _ASK_S).get(self._topic.topic, "")

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
        errors = [m.error().str() for m in messages if m.error() is not None]
        self.trouble = errors[0] if errors else self.trouble
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
            self._consumer = Consumer({**self._topic.settings, **how, **more})
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

    def send(self, answer: SendAnswer) -> None:
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
            self._producer = Producer({**self._topic.settings, **how})
        return self._producer


def _make_topics(topic: ControlTopic) -> None:
    """Makes the control topic and the topic of answers where they are missing; raises KafkaException if refused."""
    admin = AdminClient(topic.settings)
    there = admin.list_topics(timeout=_ASK_S).topics
    missing = [NewTopic(name, 1, -1) for name in (topic.topic, topic.answers) if name not in there]
    for made in admin.create_topics(missing, request_timeout=_ASK_S).values() if missing else ():
        try:
            made.result(_ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another query was faster
                raise


_ANSWER_S = 10.0
_POLL_S = 0.2


class ControlClient(Closing):
    """send() commands, then read answers(); one that comes back from send() is durable in the topic.

    Args:
        bootstrap: broker addresses.
        topic: the control topic.
        options: further librdkafka settings of a client of the broker, such as those of SASL and TLS.

    Raises:
        UsageError: the settings are none, or the broker does not answer in 10 s, or has no such topic.
    """

    def __init__(self, bootstrap: str, topic: str, options: Mapping[str, str] | None = None):
        self._bootstrap, self._topic, self._settings = bootstrap, topic, quiet(bootstrap, options or {})
        check_settings(self._settings)
        self._consumer = Consumer({**self._settings, "group.id": "control-client", "enable.auto.commit": False})
        with ExitStack() as opened:
            opened.callback(self._consumer.close)
            try:
                self._begin()
            except KafkaException as error:
                said = error.args[0].str()
                raise UsageError(f"The broker at {bootstrap} does not answer in {_ANSWER_S:.0f} s ({said}).") from error
            except StateError as error:
                raise UsageError(str(error)) from error
            opened.pop_all()

    def _begin(self) -> None:
        """Begins to read behind the answers that are there, so that none to a command sent later is missed."""
        there, answers = self._consumer.list_topics(timeout=_ANSWER_S).topics, answers_of(self._topic)
        for name in (self._topic, answers):
            if name not in there:
                raise UsageError(f"The broker at {self._bootstrap} has no topic {name}: start a query on it first.")
        ends = end_offsets(self._consumer, [(answers, part) for part in there[answers].partitions])
        self._consumer.assign([TopicPartition(*place, end) for place, end in ends.items()])

    def send(self, commands: Mapping[str, Mapping[str, Any]]) -> None:
        """Sends commands by their ids, see `impls.controltopic.commands.read_command`; returns when they are durable.

        The key is the id, so that compaction removes only what a sender has repeated.

        Raises:
            UsageError: the broker has not taken them in 10 s.
        """
        producer, failed = Producer({**self._settings, "enable.idempotence": True}), []

        def delivered(error: Any, _message: Any) -> None:
            failed.extend([error] if error is not None else [])

        for id_, command in commands.items():
            producer.produce(self._topic, to_text({"id": id_, **command}), id_, on_delivery=delivered)
        left = producer.flush(_ANSWER_S)
        if left or failed:
            reason = failed[0].str() if failed else f"{left} not acknowledged in {_ANSWER_S:.0f} s"
            raise UsageError(f"The commands were not taken by {self._bootstrap}: {reason}.")

    def answers(self, wait_s: float) -> Iterator[dict[str, Any]]:
        """Yields the answers that come, to anybody's commands, until `wait_s` has passed."""
        end = time.monotonic() + wait_s
        while (left := end - time.monotonic()) > 0:
            message = self._consumer.poll(min(left, _POLL_S))
            if message is not None and message.error() is None and message.value() is not None:
                yield from_text(message.value())

    def close(self) -> None:
        """Ends the connection."""
        self._consumer.close()
