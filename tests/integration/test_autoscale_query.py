"""A running query is rescaled by a policy, from what its broker and its workers tell, and the results stay right."""

import json
import threading
import time

import pytest
from pipeline import Pipeline, await_true

from impls.errors import UsageError
from impls.operators import HashCount

pytestmark = pytest.mark.spark

COST_US = 1000


class Sending:
    """Sends records at a rate from a thread of its own until the end of the block."""

    def __init__(self, run, rate):
        self.run, self.rate, self.over = run, rate, threading.Event()
        self.thread = threading.Thread(target=self._send)

    def _send(self):
        begin, sent = time.monotonic(), 0
        while not self.over.wait(0.1):
            due = int((time.monotonic() - begin) * self.rate)
            self.run.send(due - sent)
            sent = due

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def events(run, kind):
    lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def workers_of(query):
    return query.status()["workers"]


@pytest.mark.capability
def test_a_query_gets_as_many_workers_as_its_load_needs_and_gives_them_back(spark, kafka, topic_factory, tmp_path):
    topics = topic_factory(2), topic_factory(4)
    operator = HashCount(512, cost_us=COST_US)
    run = Pipeline(
        spark, kafka, topics, tmp_path / "run", "megaphone-batched", "hash", keys=512, workers=1, operator=operator
    )
    run.send(100)
    query = run.start()
    try:
        run.await_applied()
        with pytest.raises(UsageError, match="bounds"):
            query.autoscale("ds2", min=3, max=2)
        with pytest.raises(UsageError, match="bins"):
            query.autoscale("ds2", max=17)
        query.autoscale("ds2:catch_up_s=5", min=1, max=4, interval_s=1.0, cooldown_s=0.0, warmup=0)
        with Sending(run, 1800):
            await_true(lambda: workers_of(query) >= 3, "three workers")
            status = query.status()["autoscale"]
            assert (status["policy"], status["min"], status["max"]) == ("ds2:catch_up_s=5", 1, 4)
            assert status["last"]["numbers"]["true_rate"] < 1e6 / COST_US
        with Sending(run, 50):  # so that each step on the way back is crossed by records, or nothing can be said of it
            await_true(lambda: workers_of(query) == 1 and not query.status()["migrating"], "one worker again")
        grown, *_ = query.migrations()
        assert (grown.cause, grown.why[:4], grown.workers_before, grown.outcome) == ("policy", "ds2:", 1, "done")
        query.autoscale(None)  # before the burst, for which it would take two workers
        assert "autoscale" not in query.status()
        run.send(1000)
        run.await_applied()
        query.autoscale("ds2", min=2, max=2, interval_s=0.5, cooldown_s=3600.0, warmup=0)
        told = len(events(run, "autoscale"))
        await_true(lambda: len(events(run, "autoscale")) >= told + 2, "two more decisions")
        assert workers_of(query) == 1, "the log's last rescale is not an hour ago"
    finally:
        run.stop()
    decided = [line for line in events(run, "autoscale") if line["wanted"] is not None]
    commands = [line["id"] for line in events(run, "command")]
    assert [line["command"] for line in decided] == commands
    assert decided[0]["workers"] == 1
    assert any(line["numbers"]["backlog"] > 0 for line in decided)
    run.assert_valid(len(commands))
    with pytest.raises(UsageError, match="ended"):
        query.autoscale("ds2", max=2)


def test_an_autoscaler_that_is_started_again_keeps_the_cool_down(spark, kafka, topic_factory, tmp_path):
    topics = topic_factory(2), topic_factory(4)
    run = Pipeline(
        spark, kafka, topics, tmp_path / "run", "megaphone-all-at-once", "hash", keys=512, workers=1,
        operator=HashCount(512),
    )  # fmt: skip
    run.send(100)
    for start in range(2):
        query = run.start()
        try:
            query.autoscale("none", min=2 + start, max=4, interval_s=0.5, cooldown_s=3600.0, warmup=0)
            await_true(lambda: len(events(run, "autoscale")) >= 3, "decisions")
            seen = len(events(run, "autoscale"))
            await_true(lambda n=seen: len(events(run, "autoscale")) >= n + 2, "decisions")
            assert workers_of(query) == 2
        finally:
            run.stop()
    assert "cool-down lasts another" in events(run, "autoscale")[-1]["reason"]
    lines = (tmp_path / "run" / "checkpoint" / "rescale" / "autoscale.log").read_text().splitlines()
    assert len(lines) == 1 + len(events(run, "autoscale"))
