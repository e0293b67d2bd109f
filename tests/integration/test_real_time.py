"""The query of real-time mode on real Spark and Kafka: what comes is worked off at once, and once, whatever happens."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from counts import Counts
from pipeline import await_true
from real_time import RealTimeQuery
from topics import producer_for

from generators.clock import now_us
from generators.stream import keycount_values
from impls.controltopic.client import ControlClient
from impls.driver.control import ask
from impls.errors import UsageError
from impls.reading.state import read_state
from impls.spark.identity import Identified
from impls.spark.realtime.settings import real_time_settings
from impls.spark.realtime.start import check_real_time
from impls.worker.results import Deduplicator, number_of

DEADLINE_S = 120.0
LONG = "600 seconds"  # a batch that does not end within a test


@pytest.fixture
def begun(kafka, topic_factory, tmp_path):
    """begun(...) starts a query and returns it with what it counts."""
    made: list[Counts] = []

    def begin(**more) -> tuple[RealTimeQuery, Counts]:
        topics = (topic_factory(2), topic_factory(4))
        counts = Counts(kafka, topics)
        made.append(counts)
        query = RealTimeQuery(kafka, topics, Path(tmp_path / "run"), **more)
        query.ask("status")
        return query, counts

    yield begin
    for one in made:
        one.close()


@pytest.mark.lengthy
def test_a_command_of_the_control_topic_holds_from_a_place_in_the_input(begun, kafka):
    query, counts = begun(slots=4, batch=LONG, control="control-real-time")
    counts.send_and_await(200)
    with ControlClient(kafka, "control-real-time") as client:

        def answer(id_: str) -> str:
            told = next(client.answers(DEADLINE_S))
            assert (told["id"], told["query"]) == (id_, "q"), told
            return told["outcome"]

        place = {"offsets": {counts.input: {"0": 150, "1": 150}}}
        client.send({"place": {"do": "rescale", "workers": 3, "from": place}})
        assert answer("place") == "waiting"
        counts.send_and_await(200, (0,))
        assert query.ask("status")["workers"] == 2
        counts.send(200, (1,))
        assert answer("place") == "carried out"
        client.send({"time": {"do": "rescale", "workers": 4, "from": {"time": now_us() // 1000 + 1}}})
        assert answer("time") == "waiting"
        counts.send(200)
        assert answer("time") == "carried out"
    assert query.ask("await_migration")["done"]
    counts.await_counted()
    assert query.ask("status")["workers"] == 4
    query.end()


@pytest.mark.capability
@pytest.mark.lengthy
def test_a_record_that_nothing_follows_is_counted_and_killed_tasks_lose_and_double_nothing(begun, tmp_path):
    query, counts = begun(slots=2, threads_for=3, batch=LONG)
    counts.send(1, (1,))  # the other partition has never had one
    counts.await_counted()
    counts.send_and_await(7, (0,))

    worker = query.ask("status")["pids"]["0"]
    os.kill(worker, signal.SIGKILL)
    # also while no record shows that it is gone
    await_true(lambda: query.ask("status")["pids"]["0"] != worker, "another process of worker 0", DEADLINE_S)
    counts.send_and_await(500)

    query.ask("fail_router")
    counts.send_and_await(500)

    query.ask("rescale", workers=3)  # more than there are slots
    counts.send(500)
    key = int.from_bytes(max(counts.last), "big", signed=True)
    before = count_of(tmp_path, key)
    cuts = []
    while not cuts or not query.ask("migrated")["done"]:
        cuts.append(read_state(tmp_path / "run" / "checkpoint"))
        counts.send(50)
    counts.await_counted()
    for cut in cuts:
        assert counts_in(cut) == counts.at_end(cut.attrs["epoch"])
    assert query.ask("status")["workers"] == 3
    assert before <= count_of(tmp_path, key) == counts.last[max(counts.last)]
    query.end()
    state = read_state(tmp_path / "run" / "checkpoint")
    assert counts_in(state) == counts.at_end(state.attrs["epoch"])
    assert sum(counts_in(state).values()) == counts.sent


def counts_in(frame):
    """The counts in a frame of state, of keys that have one."""
    return {key: n for key, n in zip(frame.key, frame.value, strict=True) if n}


def count_of(folder, key):
    """The count of a key that the query which runs has now."""
    rows = ask(folder / "run" / "checkpoint", {"do": "state", "key": str(key)})["rows"]
    return rows[0]["value"] if rows else 0


@pytest.mark.capability
@pytest.mark.lengthy
def test_a_processor_of_sparks_runs_in_real_time_and_its_timers_go_off(kafka, topic_factory, tmp_path):
    topics, producer, seen = ((topic_factory(2), topic_factory(4)), producer_for(kafka), Deduplicator())
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "processor", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topics[1], partition, 0) for partition in range(4)])
    last: dict[bool, dict[int, int]] = {False: {}, True: {}}

    def has_come(expected: dict[int, int]) -> bool:
        for message in consumer.consume(1000, 0.2):
            n, value = number_of(message.headers()), json.loads(message.value())
            if seen.accept(message.partition(), n):
                last[value["timer"]][value["key"]] = value["n"]
        return last == {False: expected, True: expected}

    query = RealTimeQuery(kafka, topics, tmp_path / "run", slots=3, batch=LONG, processor=True)
    query.ask("status")
    for times in range(1, 5):
        for value in keycount_values(np.arange(50), np.full(50, now_us(), np.int64)):
            producer.produce(topics[0], value, partition=value[0] % 2)
        producer.flush(10)
        if times == 2:
            query.ask("rescale", workers=3)
        expected = dict.fromkeys(range(50), times)
        await_true(lambda: has_come(expected), f"counts of {times}: {last}", DEADLINE_S)  # noqa: B023
    assert query.ask("await_migration")["done"]
    assert query.ask("status")["workers"] == 3
    query.end()
    consumer.close()


@pytest.mark.lengthy
def test_batches_end_one_after_the_other_and_a_migration_goes_on_across_them(begun):
    query, counts = begun(slots=3, batch="2 seconds")
    for workers in (3, 2, 3):
        query.ask("rescale", workers=workers)
        end = time.monotonic() + 3
        while time.monotonic() < end:  # over at least one end of a batch
            counts.send(20)
        assert query.ask("await_migration")["done"]
    counts.await_counted()
    assert query.ask("status")["workers"] == 3
    query.end()


@pytest.mark.spark
def test_what_real_time_mode_cannot_do_is_refused_with_what_to_use_instead(spark, kafka, topic_factory):
    def refused(df, **more):
        with pytest.raises(UsageError) as caught:
            check_real_time(Identified(df), **{"checkpoint": "/there", "log_dir": None, **more})
        return str(caught.value)

    rate = spark.readStream.format("rate").load()
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka)
    records = reader.option("subscribe", topic_factory(1)).load()
    assert "not from the source rate" in refused(rate)
    assert "not from the source rate" in refused(records.select("value").union(rate.selectExpr("null as value")))
    some = reader.option("subscribe", topic_factory(1)).option("maxOffsetsPerTrigger", "5").load()
    assert "leave the option maxOffsetsPerTrigger out" in refused(some)
    assert 's3://bucket/log: use mode="micro-batch"' in refused(records, log_dir="s3://bucket/log")
    assert "settings=real_time_settings()" in refused(records)


def test_settings_of_the_users_own_are_kept():
    assert real_time_settings({"spark.ui.enabled": "true"}).items() > real_time_settings().items()
