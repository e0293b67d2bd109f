"""A query over several topics whose records are several rows, in a process of its own: `inputs.py MODE KAFKA FOLDER`.

Each word is counted. The process sends the records itself and fails where a count is not exact.
"""

import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F  # noqa: N812

import impls
from harness.setup.java import ensure_jars
from impls.errors import UsageError
from impls.operators import StatefulMap
from impls.spark.realtime.settings import real_time_settings, real_time_threads
from impls.spark.session import spark_session
from impls.worker.results import ResultReader

DEADLINE_S = 150.0
PARTITIONS = {"a": 1, "b": 3, "other": 2}
RESULTS, MANY = 2, 300_000
WORDS = [f"w{n}" for n in range(40)]
SCHEMA = "words array<string>, many int"


class Count(StatefulMap):
    """How many rows a word has had."""

    def update(self, key, record, state):
        return (state or 0) + 1, [key.decode(), (state or 0) + 1]


class World:
    """The broker's topics, the query, and what its results must be."""

    def __init__(self, mode: str, kafka: str, folder: Path):
        self.mode, self.kafka, self.folder = mode, kafka, folder
        self.live, self.name = mode == "real-time", f"in-{uuid.uuid4().hex[:6]}"
        self.admin, self.producer = AdminClient({"bootstrap.servers": kafka}), None
        more = {"settings": real_time_settings(), "threads": real_time_threads(sum(PARTITIONS.values()), 3)}
        self.spark = spark_session(ensure_jars().spark, **(more if self.live else {"threads": 3}))
        self.truth, self.pids, self.handle = Counter(), {}, None
        self.consumer, self.reader, self.queries = None, ResultReader(()).deduplicator, {}
        for topic, partitions in {**PARTITIONS, "results": RESULTS}.items():
            self.make(topic, partitions)

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def make(self, name: str, partitions: int) -> None:
        """Makes a topic, once one of the same name is gone."""
        end = time.monotonic() + DEADLINE_S
        while True:
            new = NewTopic(self.topic(name), partitions, 1, config={"retention.ms": "-1"})
            with contextlib.suppress(Exception):
                next(iter(self.admin.create_topics([new]).values())).result(30)
                break
            assert time.monotonic() < end, f"topic {name} is not made"
            time.sleep(0.2)
        self.producer = Producer({"bootstrap.servers": self.kafka, "log_level": 0})

    def made_anew(self, name: str) -> None:
        self.admin.delete_topics([self.topic(name)])[self.topic(name)].result(30)
        self.make(name, PARTITIONS[name])

    def rows(self, **subscription: str) -> Any:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka)
        for name, value in {**subscription, "startingOffsets": "earliest", "failOnDataLoss": "false"}.items():
            reader = reader.option(name, value)
        parsed = reader.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("r"))
        words = F.when(F.col("r.many").isNull(), F.col("r.words")).otherwise(
            F.transform(F.sequence(F.lit(1), F.col("r.many")), lambda n: F.concat(F.lit("m"), n))
        )
        return parsed.select(F.explode_outer(words).alias("word"))

    def start(self, name: str = "one") -> Any:
        both = self.rows(subscribe=f"{self.topic('a')},{self.topic('b')}")
        both = both.unionByName(self.rows(subscribePattern=f"{self.name}-oth.*"))
        more = {"mode": "real-time", "real_time": impls.RealTime(slots=3)} if self.live else {}
        self.pids.clear()
        self.handle = impls.stream(
            both, key="word", operator=Count(), results=impls.Output(self.kafka, self.topic("results"), RESULTS),
            state_dir=self.folder / f"state-{name}", checkpoint=self.folder / f"checkpoint-{name}", workers=2, bins=32,
            on_error="skip", on_epoch=self._note, **more,
        )  # fmt: skip
        return self.handle

    def _note(self, record: Any) -> None:
        self.pids.update({report.worker: report.pid for report in record.reports})

    def send(self, records: int) -> None:
        """Sends records of three words each, among them a null, to all partitions."""
        for n in range(records):
            for topic, partitions in PARTITIONS.items():
                words = [WORDS[n % len(WORDS)], WORDS[n * 7 % len(WORDS)], None if n % 10 == 3 else WORDS[0]]
                self.truth.update(filter(None, words))
                value = json.dumps({"words": words}).encode()
                self.producer.produce(self.topic(topic), value, partition=n % partitions)
        self.producer.produce(self.topic("b"), b"no JSON", partition=1)
        assert self.producer.flush(30) == 0

    def send_many(self) -> None:
        """Sends one record that becomes 300,000 rows of as many words."""
        self.truth.update(f"m{n}" for n in range(1, MANY + 1))
        self.producer.produce(self.topic("a"), json.dumps({"many": MANY}).encode())
        assert self.producer.flush(30) == 0

    def counted(self) -> list[Counter]:
        """The counts of each query that has sent to the topic, in the order of their first results."""
        if self.consumer is None:
            self.consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": "x", "enable.auto.commit": False})
            self.consumer.assign([TopicPartition(self.topic("results"), partition, 0) for partition in range(RESULTS)])
        found = self.consumer.consume(100_000, 1.0)
        messages = [(m.partition(), m.headers(), m.key(), m.value()) for m in found if m.error() is None]
        for result in ResultReader(messages, self.reader):
            word, count = json.loads(result.value)
            counts = self.queries.setdefault(result.number.query, Counter())
            assert count > counts[word], f"{word} is counted {count} after {counts[word]}"
            counts[word] = count
        return list(self.queries.values())

    def await_counted(self, what: str, query: int = 0) -> None:
        end, found = time.monotonic() + DEADLINE_S, Counter()
        while found != self.truth:
            failed = self.handle.failed
            assert failed is None, f"{what}: {failed}"
            missing, many = self.truth - found, found - self.truth
            assert not many, f"{what}: too many of {many.most_common(5)}"
            assert time.monotonic() < end, f"{what}: {missing.total()} are missing, as of {missing.most_common(5)}"
            queries = self.counted()
            found = queries[query] if len(queries) > query else Counter()
        print("right:", what, flush=True)  # noqa: T201 - the test shows it when the process fails

    def await_failed(self, sentence: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while self.handle.failed is None:
            assert time.monotonic() < end, f"the query goes on instead of: {sentence}"
            time.sleep(0.05)
        assert sentence in str(self.handle.failed), self.handle.failed
        with contextlib.suppress(UsageError):
            self.handle.stop()

    def kill_a_worker(self) -> None:
        os.kill(self.pids[0], signal.SIGKILL)


def main(mode: str, kafka: str, folder: Path) -> None:
    world = World(mode, kafka, folder)
    world.send(40)
    query = world.start()
    world.await_counted("several topics, a union by a pattern, several rows a record, nulls among them")
    assert 0 < query.status()["refused"] <= query.metrics()["refused"]
    world.send(40)
    moved = query.rescale(3)
    world.kill_a_worker()
    world.send(40)
    world.await_counted("a rescale and a killed worker")
    assert query.await_migration(DEADLINE_S), moved
    world.send_many()
    world.send(10)
    world.await_counted("300,000 results of one record")
    if not world.live:  # there a task that reads the topic may fail before anybody looks
        world.made_anew("other")
        world.send(20)  # fewer than were read of the former topic, so none of them is counted before the end
        world.await_failed(f"{world.topic('other')} was deleted and made anew while the query knew the former one")
        query = world.start()
        world.await_counted("a topic made anew while the query ran")
    query.stop()
    world.made_anew("a")
    world.send(20)
    query = world.start()
    world.await_counted("a topic made anew while the query was stopped")
    query.stop()
    world.truth = Counter()
    for name in PARTITIONS:
        world.made_anew(name)
    world.send(30)
    query = world.start("two")
    world.await_counted("a second query on the first one's results topic", query=1)
    query.stop()
    world.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
