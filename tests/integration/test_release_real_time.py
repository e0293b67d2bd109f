"""A query in real time is stopped while records come, and released: Spark counts each of them exactly once."""

import json
import threading

import numpy as np
import pytest
from real_time import KEYS, RealTimeQuery
from topics import producer_for

from generators.clock import now_us
from generators.stream import keycount_values

pytestmark = [pytest.mark.spark, pytest.mark.lengthy, pytest.mark.timeout(400)]


class Flow:
    """Sends records all the time until it is ended, and knows how many each key has."""

    def __init__(self, kafka, topic):
        self.counts = np.zeros(KEYS, np.int64)
        self._producer, self._topic, self._end = producer_for(kafka), topic, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        random = np.random.default_rng(5)
        while not self._end.wait(0.002):
            keys = random.integers(0, KEYS, 20)
            for n, value in enumerate(keycount_values(keys, np.full(len(keys), now_us(), np.int64))):
                self._producer.produce(self._topic, value, partition=n % 2)
            self._producer.poll(0)
            np.add.at(self.counts, keys, 1)

    def end(self):
        self._end.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


def test_each_record_counts_once_though_workers_were_at_different_places(kafka, topic_factory, tmp_path):
    topics = topic_factory(2), topic_factory(4)
    flow = Flow(kafka, topics[0])
    query = RealTimeQuery(kafka, topics, tmp_path / "run", slots=4, batch="600 seconds", aggregate=True)
    query.ask("status")
    query.ask("rescale", workers=4)
    assert query.ask("await_migration")["done"]
    said = query.ask("release")
    log = (tmp_path / "run" / "native" / "offsets" / str(said["batch"])).read_text().splitlines()
    (read,) = json.loads(log[2]).values()
    counts = query.ask("counts")["counts"]
    assert sum(counts.values()) == sum(read.values()) > 1000
    assert sum(read.values()) < flow.counts.sum()
    flow.end()
    assert query.ask("go_on")["ended"]
    found = query.ask("counts")["counts"]
    query.end()
    assert [found.get(str(key), 0) for key in range(KEYS)] == flow.counts.tolist()
