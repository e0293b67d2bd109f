"""Results on their way to Kafka: numbered, stored with the state, and sent behind the commit without gaps."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from impls.errors import StateError, UsageError
from impls.store.records import Results
from impls.worker.results import HEADER, Number, numbers_of, query_number

_SEND_DEADLINE_S = 60.0
_LOOK_S = 0.2
_CONNECT_DEADLINE_S = 5.0
_NEEDED = ("enable.idempotence", "enable.gapless.guarantee")
_KNOWN_S = 3600.0  # the broker forgets a client after a day
_Row = tuple[int, bytes, bytes, bytes]
"""Partition, key, value, number."""


@dataclass(frozen=True)
class _Client:
    """A producer, and when it sent last to each topic and partition."""

    producer: Producer
    known: dict[tuple[str, int], float] = field(default_factory=dict)


_clients: dict[tuple[tuple[str, Any], ...], _Client] = {}


@dataclass(frozen=True)
class Output:
    """A Kafka topic for results; the broker acknowledges them before an epoch ends, in real time before a commit's end.

    Guarantee: each result exactly once and each key's in order for a reader with `impls.worker.results.Deduplicator`.
    Results are stored with the state and sent behind the commit; after a crash they are sent again, so the raw topic
    may hold repeats. Each carries a number in its header, and the same number always means the same result. Several
    queries may send to one topic.

    Attributes:
        bootstrap: broker addresses.
        topic: the results topic; a bin's results go to partition bin * partitions // bins, so that a
            worker with a range of bins sends to few of them.
        partitions: its number of partitions.
        options: further librdkafka producer settings, such as those of SASL and TLS.
        query: the query's identity, which it gives itself when it begins.
        micros: times in results that are JSON have microseconds, and not milliseconds as Spark's `to_json` gives them:
            for another query that goes by them (`impls.results_of`).
    """

    bootstrap: str
    topic: str
    partitions: int
    options: dict[str, str] = field(default_factory=dict, repr=False)
    query: str = ""
    micros: bool = False

    def connect(self) -> None:
        """Connects this process to the broker, as far as that goes in 5 s: what does not work is seen by `send`."""
        with contextlib.suppress(KafkaException):
            _client(self).producer.list_topics(self.topic, _CONNECT_DEADLINE_S)

    def check(self) -> None:
        """Raises UsageError when the topic is not there, or has fewer partitions than it is to have.

        A broker that is away is no error. One that makes topics by itself gets 5 s for it. Raises UsageError also for
        options without which a repeat would have another place among the results.
        """
        for name in _NEEDED:
            if str(self.options.get(name, "true")).lower() != "true":
                raise UsageError(f"Results need the producer's setting {name}: leave it out of the Output's options.")
        end, known = time.monotonic() + _CONNECT_DEADLINE_S, None
        try:
            while known is None or (known.error is not None and time.monotonic() < end):
                if known is not None:
                    time.sleep(_LOOK_S)
                known = _client(self).producer.list_topics(self.topic, _CONNECT_DEADLINE_S).topics[self.topic]
        except KafkaException:
            return
        if known.error is not None and known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UsageError(
                f"There is no results topic {self.topic} at {self.bootstrap}: make it with "
                f"{self.partitions} partitions."
            )
        if known.error is None and len(known.partitions) < self.partitions:
            raise UsageError(
                f"The results topic {self.topic} has {len(known.partitions)} partitions, and Output says "
                f"{self.partitions}: give Output partitions={len(known.partitions)}, or the topic more partitions."
            )

    def send(
        self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int, commit: int
    ) -> None:
        """Sends results, see `impls.worker.sinks.Sink`, and returns when all are acknowledged.

        Raises StateError if they have not all been in 60 s; behind the first that was refused none was taken.
        """
        if not results.keys:
            return
        client, refused = _client(self), list[tuple[Any, Any]]()
        partitions = (results.bins.astype(np.int64) * self.partitions // bins).tolist()
        number = Number(query_number(self.query), worker, generation, epoch, first, commit)
        numbers = numbers_of(number, len(partitions))
        rows = list(zip(partitions, results.keys, results.payloads, numbers, strict=True))
        left, fatal = 0, None
        try:
            for part in _in_parts(rows, self.topic, client.known):
                for row in part:
                    _produce(client.producer, self.topic, row, refused)
                left = _flushed(client.producer, refused)
                if left or refused:
                    break
        except (KafkaException, SystemError) as error:
            fatal = _fatal(client.producer, error)
        if left or fatal or refused:
            _clients.clear()
            late = f"{left} of {len(partitions)} not acknowledged in {_SEND_DEADLINE_S:.0f} s"
            reason = _reason(refused, fatal) or late
            raise StateError(f"Results of epoch {epoch} were not taken by {self.bootstrap}: {reason}.")


def _in_parts(rows: list[_Row], topic: str, known: dict[tuple[str, int], float]) -> list[list[_Row]]:
    """Returns rows in parts to be acknowledged one behind the other, so that nothing is taken behind a refused one.

    The broker refuses what does not follow on the client's last batch in a partition, unless it knows of none: then it
    takes the second batch though it has refused the first one. So the first result in a partition goes alone.
    """
    now, partitions = time.monotonic(), {row[0] for row in rows}
    new = {one for one in partitions if now - known.get((topic, one), -_KNOWN_S) >= _KNOWN_S}
    known.update({(topic, one): now for one in partitions})
    if not new:
        return [rows]
    first = {row[0]: row for row in reversed(rows) if row[0] in new}
    return [list(first.values()), [row for row in rows if first.get(row[0]) is not row]]


def _flushed(producer: Producer, refused: list[Any]) -> int:
    """Waits until all messages are acknowledged, one is refused or 60 s have passed; returns how many are left.

    What is on its way behind a refused one stays so until the client's own deadline of minutes.
    """
    end = time.monotonic() + _SEND_DEADLINE_S
    while (left := producer.flush(_LOOK_S)) and not refused and time.monotonic() < end:
        pass
    return int(left)


def _produce(producer: Producer, topic: str, row: _Row, refused: list[Any]) -> None:
    """Gives the client a message, and waits while it has too many; raises KafkaException when it does not take it."""

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append((error, message))

    partition, key, value, number = row
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=delivered, headers=[(HEADER, number)])
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                refused.insert(0, (error.args[0], value))
            raise
        else:
            return


def _fatal(producer: Producer, error: Exception) -> KafkaError:
    """Returns the error that ends a client, once it has said what became of its messages.

    It raises the error while it calls `on_delivery`, so that Python may raise a SystemError because of it.
    """
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, KafkaException):
        raise error
    end = time.monotonic() + _CONNECT_DEADLINE_S
    while len(producer) and time.monotonic() < end:
        with contextlib.suppress(KafkaException, SystemError):
            producer.poll(0.1)
    return cause.args[0]


def _reason(refused: Sequence[tuple[Any, Any]], fatal: KafkaError | None) -> str:
    """Returns why results are not taken, and what lets a large one through; "" where nothing was refused."""
    large = [message for error, message in refused if error.code() == KafkaError.MSG_SIZE_TOO_LARGE]
    if not large:
        return str(refused[0][0]) if refused and fatal is None else str(fatal or "")
    size = max(len(one if isinstance(one, bytes) else one.value()) for one in large)
    most = 2 * size
    return (
        f"one has {size:,} bytes; for larger ones give the topic the setting max.message.bytes={most} and Output "
        f'the options {{"message.max.bytes": "{most}"}}'
    )


def _client(output: Output) -> _Client:
    settings = {
        "bootstrap.servers": output.bootstrap,
        "enable.idempotence": "true",
        "enable.gapless.guarantee": "true",  # else what follows a batch that is refused is taken, and its number passed
        "linger.ms": "5",  # flush() does not wait for it; with 0 the first results of an epoch go one by one
        "delivery.report.only.error": True,
        "batch.num.messages": "100000",
        "queue.buffering.max.messages": "1000000",
        "log_level": "3",  # of errors: one of the settings counts as experimental, which it would warn of
        **output.options,
    }
    name = tuple(sorted(settings.items()))
    if name not in _clients:
        _clients[name] = _Client(Producer(dict(settings)))
    return _clients[name]


def close_producers() -> None:
    """Ends this process's producers; they would log errors about a broker that is gone."""
    _clients.clear()
