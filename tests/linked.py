"""Two queries, the second of which reads the results of the first, rescaled, killed and started again.

In real time in a process of its own, whose Spark session needs other settings than that of the other tests.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from linked_operators import Follow, Tally
from pipeline import await_true
from scenarios import session_for
from topics import producer_for

import impls
from generators.clock import now_us
from generators.stream import keycount_values
from harness.run.pipeline import read_records
from impls.driver.handle import StreamHandle
from impls.worker.results import Deduplicator, number_of

KEYS, PARTITIONS, BINS, SLOTS = 40, 4, 16, 4
DEADLINE_S = 150.0


class Topic:
    """The results of a query so far: by key how many there are, and the last one."""

    def __init__(self, kafka: str, topic: str):
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "linked", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._seen, self.last, self.repeats = Deduplicator(), dict[bytes, tuple[int, dict[str, int]]](), 0
        self.raw: list[Any] = []

    def read(self) -> dict[bytes, tuple[int, dict[str, int]]]:
        while messages := self._consumer.consume(10_000, 0.3):
            for message in messages:
                assert message.error() is None, message.error()
                self.raw.append(message)
                if self._seen.accept(message.partition(), number_of(message.headers())):
                    times, _ = self.last.get(message.key(), (0, {}))
                    self.last[message.key()] = times + 1, json.loads(message.value())
                else:
                    self.repeats += 1
        return self.last


@dataclass
class Linked:
    """Both queries; `start` one of them, and again."""

    spark: Any
    kafka: str
    topics: list[str]
    folder: Path
    mode: str = "micro-batch"
    sent: int = 0
    handles: dict[int, StreamHandle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.results = [Topic(self.kafka, topic) for topic in self.topics[1:]]

    def deadly(self, stage: int) -> Path:
        return self.folder / f"kill-{stage}"

    def start(self, stage: int) -> None:
        out = [impls.Output(self.kafka, topic, PARTITIONS) for topic in self.topics[1:]]
        if stage == 0:
            frame, key, operator = read_records(self.spark, self.kafka, self.topics[0]), "key", Tally
        else:
            frame, key, operator = impls.results_of(self.spark, out[0], "name long, n long"), "name", Follow
        own = self.folder / str(stage)
        self.handles[stage] = impls.stream(
            frame, key=key, operator=operator(str(self.deadly(stage))), results=out[stage], state_dir=own / "state",
            checkpoint=own / "checkpoint", workers=2, bins=BINS, mode=self.mode, real_time=impls.RealTime(SLOTS),
            py_files=[Path(__file__).with_name("linked_operators.py")],
        )  # fmt: skip

    def send(self, records: int) -> None:
        keys = np.random.default_rng(self.sent).integers(0, KEYS, records)
        producer = producer_for(self.kafka)
        for i, value in enumerate(keycount_values(keys, np.full(records, now_us(), np.int64))):
            producer.produce(self.topics[0], value, partition=i % 2)
        assert producer.flush(30) == 0
        self.sent += records

    def settled(self) -> bool:
        """Whether the first query has counted all records, and the second has seen each of its results once."""
        second, first = (topic.read() for topic in reversed(self.results))  # of the second one nothing is ahead
        assert all(last["seen"] <= first[key][0] for key, (_, last) in second.items()), "a result was seen twice"
        return sum(last["n"] for _, last in first.values()) == self.sent and {
            key: (last["seen"], last["n"]) for key, (_, last) in second.items()
        } == {key: (times, last["n"]) for key, (times, last) in first.items()}

    def await_settled(self, what: str) -> None:
        def settled() -> bool:
            for handle in self.handles.values():
                assert not handle.await_end(0)  # which raises what it has failed with
            return self.settled()

        await_true(settled, what, DEADLINE_S)

    def kill(self, stage: int) -> None:
        """Has a worker of a query die behind its results, which come again."""
        self.deadly(stage).touch()
        self.send(200)
        await_true(lambda: not self.deadly(stage).exists(), f"a worker of query {stage} to die", DEADLINE_S)
        self.await_settled(f"both queries behind the death of a worker of query {stage}")

    def send_again(self, messages: int) -> None:
        """Sends the last results of the first query again, as they are."""
        producer = producer_for(self.kafka)
        for one in sorted(self.results[0].raw[-messages:], key=lambda m: (m.partition(), m.offset())):
            producer.produce(self.topics[1], one.value(), one.key(), one.partition(), headers=one.headers())
        assert producer.flush(30) == 0

    def rescale(self, workers: dict[int, int]) -> None:
        ids = {stage: self.handles[stage].rescale(many) for stage, many in workers.items()}
        self.send(200)
        for stage in ids:
            assert self.handles[stage].await_migration(DEADLINE_S), f"query {stage} to rescale"


def scenario(linked: Linked) -> int:
    """Runs both queries through everything, and returns how many results the first one has sent again."""
    linked.start(0)
    linked.start(1)
    linked.send(300)
    linked.await_settled("the first results")
    linked.kill(0)
    linked.rescale({0: 3, 1: 4})
    linked.await_settled("both queries behind their rescales")
    linked.kill(1)
    linked.handles.pop(1).stop()
    linked.send_again(100)
    linked.send(100)
    linked.start(1)
    linked.rescale({0: 2})
    linked.rescale({1: 2})
    linked.await_settled("both queries behind a start")
    for handle in linked.handles.values():
        handle.stop()
    return linked.results[0].repeats


def main(given: dict[str, Any]) -> None:
    """Runs the scenario in real time."""
    spark = session_for([2, PARTITIONS], SLOTS)
    again = scenario(Linked(spark, given["kafka"], given["topics"], Path(given["folder"]), "real-time"))
    sys.stdout.write(f"{again}\n")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
