"""A sender of commands: puts them into a control topic and hears the answers."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from impls.controltopic.topic import answers_of, quiet
from impls.driver.arrivals import end_offsets
from impls.errors import StateError, UsageError
from impls.protocol.jsontext import from_text, to_text

__all__ = ["ControlClient"]

_ASK_S = 10.0
_POLL_S = 0.2


class ControlClient:
    """send() commands, then read answers(); one that comes back from send() is durable in the topic.

    Args:
        bootstrap: broker addresses.
        topic: the control topic.

    Raises:
        UsageError: the broker does not answer in 10 s, or has no such topic.
    """

    def __init__(self, bootstrap: str, topic: str):
        self._bootstrap, self._topic = bootstrap, topic
        how = {"group.id": "control-client", "enable.auto.commit": False}
        self._consumer = Consumer(quiet(bootstrap, **how))
        with ExitStack() as opened:
            opened.callback(self._consumer.close)
            try:
                self._begin()
            except KafkaException as error:
                said = error.args[0].str()
                raise UsageError(f"The broker at {bootstrap} does not answer in {_ASK_S:.0f} s ({said}).") from error
            except StateError as error:
                raise UsageError(str(error)) from error
            opened.pop_all()

    def _begin(self) -> None:
        """Begins to read behind the answers that are there, so that none to a command sent later is missed."""
        there, answers = self._consumer.list_topics(timeout=_ASK_S).topics, answers_of(self._topic)
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
        producer, failed = Producer(quiet(self._bootstrap, **{"enable.idempotence": True})), []

        def delivered(error: Any, _message: Any) -> None:
            failed.extend([error] if error is not None else [])

        for id_, command in commands.items():
            producer.produce(self._topic, to_text({"id": id_, **command}), id_, on_delivery=delivered)
        left = producer.flush(_ASK_S)
        if left or failed:
            reason = failed[0].str() if failed else f"{left} not acknowledged in {_ASK_S:.0f} s"
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
