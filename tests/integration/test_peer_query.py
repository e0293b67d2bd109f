"""Another engine's count as a query of a run: a small engine in Python, with real topics and a real consumer group."""

import contextlib
import threading
from collections import Counter

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer
from pipeline import await_true

from generators.stream import keycount_values
from harness.lab.engines.engine import Engine, Job
from harness.run.engine import EngineQuery
from impls.errors import StateError, UsageError

KEYS, BINS = 20, 4
DEADLINE_S = 60


class Counting(Engine):
    """Counts in a thread, and commits what it has counted; a rescale waits until it is let go."""

    name = "Counting"

    def __init__(self, job: Job):
        self._job, self._ended, self.failure = job, threading.Event(), ""
        self.let_go = threading.Event()

    def start(self, workers: int) -> None:
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        own = {"bootstrap.servers": self._job.bootstrap}
        reading = {"group.id": self._job.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer, producer = Consumer({**own, **reading}), Producer({**own, "linger.ms": 1})
        consumer.subscribe(list(self._job.topics))
        counts: Counter[int] = Counter()
        while not self._ended.is_set():
            for message in consumer.consume(100, 0.1):
                key, scheduled = int(message.value()[:16]), int(message.value()[16:])
                counts[key] += 1
                if scheduled:
                    producer.produce(self._job.results, str(counts[key]), str(key))
                consumer.commit(message, asynchronous=False)
            producer.flush(5)
        consumer.close()

    def rescale(self, workers: int) -> None:
        assert self.let_go.wait(DEADLINE_S)

    def kill_worker(self) -> int:
        return 1

    def check(self) -> None:
        if self.failure:
            raise StateError(self.failure)

    def read_topics(self) -> tuple[str, ...]:
        return self._job.topics

    def pids(self) -> dict[str, int]:
        return {"engine": 1}

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(DEADLINE_S)


def send(bootstrap: str, topic: str, scheduled_us: int) -> None:
    producer, keys = Producer({"bootstrap.servers": bootstrap}), np.arange(KEYS, dtype=np.int64)
    for value in keycount_values(keys, np.full(KEYS, scheduled_us, np.int64)):
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


@pytest.fixture
def running(kafka, topic_factory, tmp_path):
    """A query on an engine, with its engine, its epochs and its events; the state is one record per key."""
    job = Job(kafka, (topic_factory(1), topic_factory(1)), topic_factory(1), f"g-{tmp_path.name}", 4, tmp_path)
    send(kafka, job.topics[1], 0)
    engine, epochs, events = Counting(job), [], []
    query = EngineQuery(
        engine, job, workers=2, bins=BINS, on_epoch=lambda line, more: (epochs.append(line), events.extend(more)),
        on_event=lambda kind, fields: events.append({"kind": kind, **fields}),
    )  # fmt: skip
    await_true(lambda: bool(epochs), "the first epoch", DEADLINE_S)
    yield query, engine, job, epochs, events
    with contextlib.suppress(StateError) if engine.failure else contextlib.nullcontext():
        query.stop()


@pytest.mark.capability
def test_a_rescale_ends_with_the_first_result_behind_it(kafka, running):
    query, engine, job, epochs, events = running
    assert sum(epoch["records"] for epoch in epochs) == 0  # what makes the state is no part of the load
    send(kafka, job.topics[0], 5)
    await_true(
        lambda: query.status()["settled"] and sum(t["records"] for t in epochs) == KEYS, "the results", DEADLINE_S
    )
    id_ = query.rebalance(np.array([0, 1, 2, 3]), label="rescale")
    await_true(lambda: any(e["kind"] == "migration_begin" for e in events), "the rescale to begin", DEADLINE_S)
    assert query.status()["migrating"]
    assert query.status()["workers"] == 2
    with pytest.raises(UsageError, match="is being rescaled"):
        query.rebalance(np.array([0, 1, 2, 2]))
    engine.let_go.set()
    send(kafka, job.topics[0], 6)
    await_true(lambda: any(e["kind"] == "migration_end" for e in events), "the rescale to end", DEADLINE_S)
    kinds = [e["kind"] for e in events if e.get("id") == id_]
    assert kinds == ["command", "migration_begin", "migration_end"]
    assert query.status()["workers"] == 4
    assert [epoch["moved_bins"] for epoch in epochs if epoch["migrating"]] == [BINS]
    await_true(
        lambda: query.status()["settled"] and sum(t["records"] for t in epochs) == 2 * KEYS, "the last results",
        DEADLINE_S,
    )  # fmt: skip


def test_an_engine_that_fails_ends_the_query_with_its_sentence(running):
    query, engine, *_ = running
    engine.failure = "Its disk is full."
    with pytest.raises(StateError, match=r"^Counting failed: Its disk is full\.$"):
        query.await_end(DEADLINE_S)
    with pytest.raises(UsageError, match="has ended"):
        query.rebalance(np.array([0, 1, 2, 3]))
    with pytest.raises(StateError, match="Its disk"):
        query.stop()
