"""What an example has around its query: broker, Spark session, topics, records to send, and results to check."""

import argparse
import inspect
import json
import logging
import signal
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from harness.lab.bringup import bring_up, open_session
from harness.lab.topics import create_topics
from impls.closing import Closing
from impls.driver.observed import RunningQuery
from impls.errors import StateError, UsageError
from impls.worker.results import Deduplicator, number_of

_DEADLINE_S = 120.0
_POLL_S = 0.2
_CONNECT_S = 5.0
_CUT_OFF = 130
_QUIET = {"log_level": 0}  # a client says that its broker is gone, which ends before it


class Playground(Closing):
    """A broker, unless one is given, a session and a temporary folder; all of them end with `close`, or with `with`.

    Attributes:
        kafka: addresses of the broker.
        spark: the session, with Spark's Kafka connector.
        folder: a temporary folder, for state and checkpoint.

    Raises:
        UsageError: Java is missing, or a broker does not answer.
    """

    def __init__(self, kafka: str | None = None, *, threads: int = 4):
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rescale-")))
            here = stack.enter_context(
                bring_up(self.folder, bootstrap=kafka, session=partial(open_session, "example", threads))
            )
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's would fail the epoch that is under way
            self.kafka, self.spark = here.broker.bootstrap, here.spark
            self._producer = Producer({"bootstrap.servers": self.kafka, **_QUIET})
            self._readers: dict[str, TopicRows] = {}
            self._partitions: dict[str, int] = {}
            self._stack = stack.pop_all()

    def topic(self, name: str, partitions: int) -> str:
        """Creates a topic and returns its full name, which no topic has had before."""
        full = f"{name}-{uuid.uuid4().hex[:8]}"
        create_topics(self.kafka, {full: partitions})
        self._partitions[full] = partitions
        return full

    def send(self, topic: str, rows: Iterable[Mapping[str, Any]], by: str) -> None:
        """Sends rows as JSON, those of one key, which the column `by` holds, to one partition."""
        for row in rows:
            at = zlib.crc32(str(row[by]).encode()) % self._partitions[topic]
            self._produce(topic, row, at)
        self._flush()

    def send_everywhere(self, topic: str, row: Mapping[str, Any]) -> None:
        """Sends a row to every partition, such as one whose time lets the watermark pass."""
        for at in range(self._partitions[topic]):
            self._produce(topic, row, at)
        self._flush()

    def results(self, topic: str, number: int = 0, query: RunningQuery | None = None) -> list[dict[str, Any]]:
        """Returns all results that are in a topic, repeats removed, as soon as there are `number` of them.

        Raises what the `query` that sends them has failed with, as soon as it has ended without them.

        Raises:
            StateError: they have not come in two minutes, or the query has ended without a failure and without them.
        """
        if topic not in self._readers:
            self._readers[topic] = TopicRows(self.kafka, topic, self._partitions[topic])
        return self._readers[topic].read(number, query)

    def check(self, what: str, found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> None:
        """Says that results are what was expected, in any order, or what differs; raises StateError then."""
        left, right = (sorted(json.dumps(row, sort_keys=True) for row in rows) for rows in (found, expected))
        if left != right:
            wrong, missing = sorted(set(left) - set(right)), sorted(set(right) - set(left))
            raise StateError(
                f"The {what} are wrong: {len(left)} came, {len(right)} were expected; the first that should not be "
                f"there is {wrong[:1]}, the first that is missing {missing[:1]}."
            )
        say(f"All {len(left)} {what} are right.")

    def close(self) -> None:
        """Ends what was started."""
        for reader in self._readers.values():
            reader.close()
        self._stack.close()

    def _produce(self, topic: str, row: Mapping[str, Any], partition: int) -> None:
        self._producer.produce(topic, json.dumps(row), partition=partition)
        self._producer.poll(0)

    def _flush(self) -> None:
        if self._producer.flush(_DEADLINE_S):
            raise StateError(f"The broker {self.kafka} has not taken the records in {_DEADLINE_S:.0f} s.")


class TopicRows:
    """The rows of a results topic, read from its beginning on."""

    def __init__(self, kafka: str, topic: str, partitions: int):
        self._topic, self._seen, self._rows = topic, Deduplicator(), list[dict[str, Any]]()
        settings = {"bootstrap.servers": kafka, "group.id": "example", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, **_QUIET})
        self._consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])

    def read(self, number: int, query: RunningQuery | None) -> list[dict[str, Any]]:
        """Returns all rows that are there, once there are `number`; raises as `Playground.results` does."""
        end, has_ended = time.monotonic() + _DEADLINE_S, False
        while (taken := self._take()) or len(self._rows) < number:
            if has_ended and not taken and self._at_end():
                raise StateError(f"The query has ended with {len(self._rows)} of {number} results in {self._topic}.")
            if time.monotonic() > end:
                raise StateError(
                    f"{len(self._rows)} of {number} results were in {self._topic} after {_DEADLINE_S:.0f} s."
                )
            has_ended = query is not None and not taken and query.await_end(0)
        return list(self._rows)

    def _take(self) -> int:
        """Takes what is there, or comes soon, and returns how many messages that were."""
        messages = [message for message in self._consumer.consume(1000, timeout=_POLL_S) if message.error() is None]
        for message in messages:
            number = number_of(message.headers())
            if number is not None and self._seen.accept(message.partition(), number):
                self._rows.append(json.loads(message.value()))
        return len(messages)

    def _at_end(self) -> bool:
        """Returns whether all messages of the topic have been taken."""
        at = self._consumer.position(self._consumer.assignment())
        with suppress(KafkaException):  # a broker that has ended too has nothing more
            return all(self._consumer.get_watermark_offsets(one, _CONNECT_S)[1] <= max(one.offset, 0) for one in at)
        return True

    def close(self) -> None:
        """Ends the client."""
        self._consumer.close()


def say(words: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def run(example: Callable[[Playground], None]) -> None:
    """Runs an example in a playground and ends the program, with one sentence where it fails; Ctrl-C ends it cleanly.

    The exit code is 1 for wrong results, 2 for bad input, 130 for Ctrl-C.
    """
    about = inspect.getdoc(inspect.getmodule(example)) or ""
    parser = argparse.ArgumentParser(description=about.split("\n\n")[0])
    parser.add_argument("--kafka", help="addresses of a broker; without it one is started and ended")
    options = parser.parse_args()
    say(f"{about}\n")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        with Playground(options.kafka) as here:
            example(here)
    except KeyboardInterrupt:
        say("Stopped: the query has ended between two epochs.")
        sys.exit(_CUT_OFF)
    except (StateError, UsageError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2 if isinstance(error, UsageError) else 1)
