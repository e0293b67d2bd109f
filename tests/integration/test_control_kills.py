"""Commands from three senders while the driver is killed twice: each is carried out once, in an order explained."""

import json
import os
import signal
import threading
import time
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from controlled import findings
from controlled_process import PARTITIONS, ControlledProcess, Load, begins_of, bounds_of, commanded_of, done_of
from pipeline import Pipeline, await_true

from harness.lab.broker import EmbeddedBroker
from harness.lab.topics import admin_of
from harness.setup.java import ensure_jars, find_java
from impls.controltopic.client import ControlClient
from impls.driver.control import ask

COMMANDS, SENDERS, LIVES = 100, 3, 3
DEADLINE_S = 240.0  # a start of Spark takes a minute on a busy machine
pytestmark = pytest.mark.lengthy


class Senders:
    """Three senders of commands, each with a client of its own; one command in ten is sent twice.

    A third of the commands hold from the next epoch on, a third from a time and a third from offsets to come. A
    third is sent in each of the driver's lives.
    """

    def __init__(self, kafka, control, topic, *, pause_s):
        self.commands, self._lock = {}, threading.Lock()
        self.lives = [threading.Event() for _ in range(LIVES)]
        self.lives[0].set()
        self._kafka, self._control, self._topic, self._pause_s = kafka, control, topic, pause_s
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _run(self, sender):
        random = np.random.default_rng(sender)
        producer = Producer({"bootstrap.servers": self._kafka, "enable.idempotence": True, "linger.ms": 1})
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": f"sender-{sender}"})
        for number in range(sender, COMMANDS, SENDERS):
            assert self.lives[number * LIVES // COMMANDS].wait(DEADLINE_S)
            command = {"sender": f"s{sender}", "do": "rescale", "workers": int(random.integers(1, 7))}
            kind = random.integers(3)
            if kind == 1:
                command["from"] = {"time": time.time_ns() // 1_000_000 + int(random.integers(-200, 1500))}
            elif kind == 2:
                places = [TopicPartition(self._topic, part) for part in range(PARTITIONS)]
                ends = [consumer.get_watermark_offsets(place, 10)[1] for place in places]
                offsets = {str(part): int(end + random.integers(0, 100)) for part, end in enumerate(ends)}
                command["from"] = {"offsets": {self._topic: offsets}}
            id_ = f"c{number}"
            with self._lock:
                self.commands[id_] = command
            for _ in range(1 + (number % 10 == 0)):
                producer.produce(self._control, json.dumps({"id": id_, **command}), id_)
            assert producer.flush(30) == 0
            time.sleep(self._pause_s)  # the pace at which commands come
        consumer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for life in self.lives:
            life.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


class Answers:
    """What has been answered so far, from the topic's beginning."""

    def __init__(self, kafka, topic):
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "answers", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.told = defaultdict(set)

    def has(self, number):
        """Whether so many commands have been carried out."""
        for message in self._consumer.consume(1000, 0.05):
            if message.error() is None:
                said = json.loads(message.value())
                assert said["outcome"] != "refused", said
                if said["outcome"] == "carried out":
                    self.told[said["id"]].add((said["epoch"], said["number"]))
        return len(self.told) >= number

    def close(self):
        self._consumer.close()


def _have(process, answers, number):
    """Whether so many commands have been carried out; fails when the query has ended instead."""
    process.check()
    return answers.has(number)


def storm(process, kafka, control, topic, send, *, pause_s):
    """Lets commands come while the driver is killed twice, waits until all are answered, and ends the query."""
    answers = Answers(kafka, f"{control}-answers")
    await_true((process.folder / "checkpoint/rescale/control.log").exists, "the query to start", DEADLINE_S)
    senders = Senders(kafka, control, topic, pause_s=pause_s)
    with Load(send), senders:
        for life, number in ((1, COMMANDS // 4), (2, COMMANDS * 6 // 10)):
            await_true(partial(_have, process, answers, number), f"{number} answers", DEADLINE_S)
            process.kill()
            process.start()
            senders.lives[life].set()
        await_true(partial(_have, process, answers, COMMANDS), "all answers", DEADLINE_S)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(control, json.dumps({"id": "end", "do": "stop"}), "end")
    assert producer.flush(30) == 0
    process.await_end()
    answers.close()
    assert {id_: len(told) for id_, told in answers.told.items() if len(told) != 1} == {}
    return senders.commands


def has_topic(bootstrap, name):
    return name + "-answers" in admin_of(bootstrap).list_topics(timeout=10).topics


def check(folder, kafka, topic, commands):
    """Judges what the journals say."""
    done = done_of(folder)
    bounds = bounds_of(kafka, topic, commands)
    assert findings(done, begins_of(folder), bounds, commands, commanded_of(folder)) == []
    assert len(commanded_of(folder)) == COMMANDS
    assert {one["generation"] for one in done} == {1, 2, 3}
    assert {one["sender"] for one in done} == {"s0", "s1", "s2"}
    sent = [one["id"] for one in sorted(done, key=lambda one: one["at"])]
    assert sent != [one["id"] for one in done], "no command was overtaken"


def test_a_hundred_commands_while_the_driver_is_killed_twice(kafka, topic_factory, tmp_path):
    topic, control = topic_factory(PARTITIONS), "control-storm"
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 1})

    def send():
        for part in range(PARTITIONS):
            producer.produce(topic, b"record", partition=part)
        producer.flush(30)

    process = ControlledProcess(tmp_path, kafka, (topic, ""), control, spark=False)
    commands = storm(process, kafka, control, topic, send, pause_s=0.05)
    check(tmp_path, kafka, topic, commands)


def test_a_broker_that_is_away_stops_nothing_of_the_query(kafka, topic_factory, tmp_path):
    topic, control = topic_factory(PARTITIONS), "control"
    checkpoint = tmp_path / "query" / "checkpoint"

    def epochs():
        return len(list((checkpoint / "spark" / "offsets").glob("[0-9]*")))

    with EmbeddedBroker(tmp_path / "broker", ensure_jars().broker, find_java()) as broker:
        process = ControlledProcess(tmp_path / "query", kafka, (topic, ""), control, spark=False, at=broker.bootstrap)
        await_true(partial(has_topic, broker.bootstrap, control), "the control topic", DEADLINE_S)
        with ControlClient(broker.bootstrap, control) as client:
            client.send({"before": {"do": "rescale", "workers": 2}})
            assert next(client.answers(DEADLINE_S))["outcome"] == "carried out"
        os.kill(broker.pid, signal.SIGKILL)
        await_true(lambda: "trouble" in ask(checkpoint, {"do": "status"})["control"], "the broker to be missed")
        seen = epochs()
        await_true(lambda: epochs() > seen + 10, "epochs to go on")
        broker.restart()
        with ControlClient(broker.bootstrap, control) as client:
            client.send({"behind": {"do": "rescale", "workers": 3}, "end": {"do": "stop"}})
            told = {}  # an answer comes again when the broker was killed before it had said that it has it
            for one in client.answers(DEADLINE_S):
                told[one["id"]] = one["number"]
                if one["id"] == "end":
                    break
            assert told in ({"behind": 2, "end": 3}, {"before": 1, "behind": 2, "end": 3})
        process.await_end()
    assert [one["id"] for one in done_of(tmp_path / "query")] == ["before", "behind"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_commands_while_a_query_of_spark_is_killed_twice(kafka, topic_factory, tmp_path):
    topics, control = (topic_factory(PARTITIONS), topic_factory(4)), "control-spark-storm"
    run = Pipeline(None, kafka, topics, tmp_path, "megaphone-all-at-once")
    process = ControlledProcess(tmp_path, kafka, topics, control, spark=True)
    commands = storm(process, kafka, control, topics[0], lambda: run.send(20), pause_s=0.5)
    check(tmp_path, kafka, topics[0], commands)
    process.start()  # works off what has come since
    await_true(lambda: run.applied() >= run.sent, "all records to be applied", DEADLINE_S)
    ask(tmp_path / "checkpoint", {"do": "stop"})  # the oracle counts an epoch that Spark has committed
    process.await_end()
    answer = run.check(1)
    assert (answer["lost"], answer["doubled"], answer["wrong"]) == (0, 0, 0), answer
    assert answer["verdict"] != "invalid", answer
