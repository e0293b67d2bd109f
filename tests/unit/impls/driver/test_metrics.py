"""Metrics of a running query: counts since the driver began, rates of the last seconds, migrations, and its log."""

import logging
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from telling import epoch_record

from impls.driver.epochs import in_short, sentences_of
from impls.driver.metrics import Metrics
from impls.driver.observed import Observed
from impls.driver.prometheus import query_families
from impls.errors import UsageError
from impls.protocol.events import ChangeRefused, MigrationBegun, MigrationDone


class Clock:
    """A clock that is set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics(clock):
    return Metrics(clock)


def test_counts_grow_and_rates_are_those_of_the_last_seconds(metrics, clock):
    for epoch in range(3):
        metrics.take(epoch_record(epoch, np.arange(1, 101)))
        clock.now += 1.0
    clock.now -= 1.0
    now = metrics.now()
    assert (now["records"], now["moved_bins"], now["moved_bytes"], now["epoch"]) == (300, 6, 3072, 2)
    assert now["rate"] == pytest.approx(300 / 2.21, rel=0.01), "from the begin of the first epoch on, 210 ms before"
    assert [row["rate"] for row in now["workers"]] == [now["rate"], 0.0]
    clock.now += 60
    assert (metrics.now()["rate"], metrics.now()["latency_ms"], metrics.now()["records"]) == (0.0, {}, 300)


def test_latencies_are_those_of_the_last_seconds(metrics, clock):
    metrics.take(epoch_record(0, [5000.0]))
    clock.now += 6
    metrics.take(epoch_record(1, np.arange(1, 101)))
    assert metrics.now()["latency_ms"] == pytest.approx({"p50": 50, "p99": 99, "max": 100}, rel=0.01)


def test_before_the_first_epoch_there_are_counts_alone(metrics):
    now = metrics.now()
    assert (now["records"], now["workers"], now["events"]) == (0, [], [])
    assert metrics.counts()["records"] == 0


def test_a_migration_is_told_while_it_runs_and_when_it_has_ended(metrics, clock):
    begun, done = MigrationBegun("a", "rescale to 4 workers", 5, 6), MigrationDone("a", 6)
    metrics.take(replace(epoch_record(4, [1]), events=()))
    metrics.take(replace(epoch_record(5, [1]), events=(begun,)))
    clock.now += 2.0
    under_way = metrics.now()["migration"]
    assert (under_way["label"], under_way["bins"], under_way["moved_bins"], under_way["left"]) == (begun.label, 6, 2, 6)
    assert under_way["seconds"] == pytest.approx(2.21)
    metrics.take(replace(epoch_record(6, [1]), events=(done,)))
    now = metrics.now()
    assert now["migration"] is None
    assert (now["last_migration"]["moved_bins"], now["last_migration"]["moved_bytes"], now["migrations"]) == (
        4,
        2048,
        1,
    )
    assert [event["text"] for event in now["events"]] == [
        "Migration a (rescale to 4 workers) begins with epoch 5: 6 bins to move.",
        "Migration a is done with epoch 6.",
    ]


def test_a_migration_that_gave_way_is_not_counted(metrics):
    metrics.take(replace(epoch_record(5, [1]), events=(MigrationBegun("a", "x", 5, 6),)))
    more = (MigrationDone("a", 6, superseded=True), MigrationBegun("b", "y", 6, 3))
    metrics.take(replace(epoch_record(6, [1]), events=more))
    assert metrics.now()["migrations"] == 0
    assert metrics.now()["migration"]["id"] == "b", "it begins with the epoch that ends the other"


def test_commands_are_planned_and_counted_for_sparks_progress(metrics):
    metrics.plan(8, 4096)
    metrics.take(epoch_record(0, [1, 2]))
    counts = metrics.counts()
    assert (counts["planned_bins"], counts["planned_bytes"], counts["workers"], counts["misplaced"]) == (8, 4096, 2, 6)
    assert all(isinstance(value, int) for value in counts.values())


def test_what_happened_is_told_in_sentences():
    record = epoch_record(7, [1])
    record.reports[1].recovered = "missing"
    refused = ChangeRefused("c", 7, 2, "it raised KeyError.", rolled_back=True)
    assert sentences_of(replace(record, events=(refused,))) == [
        "Worker 1 was rebuilt from the checkpoint in epoch 7: missing.",
        "Change c is taken back with epoch 7: it raised KeyError.",
    ]
    assert in_short(record) == "Epoch 7: 1 records by 2 workers in 210 ms, 0 queued, 2 bins moved (1024 bytes)."


class Query(Observed):
    """A query that is observed."""

    def status(self):
        return {"epoch": 7}


def _scraped(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_a_handle_serves_its_metrics_until_the_query_ends(metrics, caplog):
    query = Query(metrics, {"query": "rescale-1"})
    metrics.take(epoch_record(7, np.arange(1, 101)))
    with caplog.at_level(logging.INFO, "impls.driver"):
        port = query.serve_metrics()
    assert caplog.messages == [f"Metrics are at http://127.0.0.1:{port}/metrics."]
    found = _scraped(port)
    name = ("query", "rescale-1")
    assert found["rescale_records_total", (name,)] == 100
    assert found["rescale_moved_bytes_total", (name,)] == 1024
    assert found["rescale_queued_records", (name,)] == 0
    assert found["rescale_worker_busy_seconds", (name, ("worker", "0"))] == pytest.approx(0.046)
    with pytest.warns(FutureWarning, match="metrics"):
        assert query.figures() == query.metrics()
    with pytest.raises(UsageError, match="cannot be listened on"):
        query.serve_metrics(port)
    with pytest.raises(UsageError, match="up to 65535, not 70000"):
        query.serve_metrics(70_000)
    query.end_serving()
    with pytest.raises(OSError, match="refused"):
        _scraped(port)
    with pytest.raises(UsageError, match="has ended"):
        query.serve_metrics()


def test_a_query_that_is_watched_answers_with_status_and_metrics(metrics):
    query = Query(metrics, {"query": "rescale-1"})
    answer = query.answer_watch({"do": "watch"})
    assert (answer["query"], answer["status"]) == ("rescale-1", {"epoch": 7})
    assert answer["metrics"]["records"] == 0
    assert query.answer_watch({"do": "stop"}) is None


def test_a_number_that_a_query_never_has_makes_no_metric(metrics):
    metrics.take(epoch_record(7, [1]))
    names = {family.name for family in query_families(metrics.now(), {"query": "q"})}
    assert "rescale_lag_records" not in names
    assert {"rescale_state_bytes", "rescale_fired_timers", "rescale_latency_seconds"} <= names
