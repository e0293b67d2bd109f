"""The embedded broker: real records, real restarts, real kills."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic
from processes import working_on

from harness.lab import broker as module
from harness.lab.bringup import bring_up
from harness.lab.broker import EmbeddedBroker, ExternalBroker
from harness.lab.ports import free_ports
from harness.lab.topics import admin_of, create_topics
from harness.setup.java import ensure_jars, find_java
from impls.driver.arrivals import asking, end_offsets
from impls.errors import StateError, UsageError
from impls.spark.known import KafkaTopics
from impls.store.records import Results
from impls.worker.output import Output

DEADLINE_S = 20.0
PARENT = """
import sys, time
from pathlib import Path
from harness.lab.broker import EmbeddedBroker
from harness.setup.java import ensure_jars
from harness.setup.java import find_java
broker = EmbeddedBroker(Path(sys.argv[1]), ensure_jars().broker, find_java())
broker.start()
print(broker.pid, broker.bootstrap, flush=True)
time.sleep(100)
"""


def embedded(folder) -> EmbeddedBroker:
    return EmbeddedBroker(folder, ensure_jars().broker, find_java())


def produce(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("in", value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition("in", 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=DEADLINE_S)]


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def await_end(pid: int, port: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while runs(pid):
        assert time.monotonic() < end, f"the broker still runs after {DEADLINE_S} s"
        time.sleep(0.02)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_records_survive_a_stop_and_a_kill(tmp_path):
    with embedded(tmp_path / "broker") as broker:
        create_topics(broker.bootstrap, {"in": 2, "out": 4})
        create_topics(broker.bootstrap, {"in": 2})
        with pytest.raises(UsageError, match="The topic out exists with 4 partitions, not 3"):
            create_topics(broker.bootstrap, {"out": 3})
        produce(broker.bootstrap, b"first")
    with embedded(tmp_path / "broker") as broker:
        produce(broker.bootstrap, b"second")
        with (
            contextlib.closing(asking({"bootstrap.servers": broker.bootstrap})) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            assert end_offsets(client, [("in", 0)]) == {("in", 0): 2}
            os.kill(broker.pid, signal.SIGKILL)
            asked = pool.submit(end_offsets, client, [("in", 0)], DEADLINE_S * 3)
            broker.restart()
            assert asked.result(DEADLINE_S) == {("in", 0): 2}, (
                "who asks meanwhile is answered by the one that comes back"
            )
    with embedded(tmp_path / "broker") as broker:
        assert consume(broker.bootstrap, 2) == [b"first", b"second"]
        port = int(broker.bootstrap.split(":")[1])
        pid = broker.pid
    await_end(pid, port)


def test_a_new_topic_answers_at_once(kafka):
    for number in range(50):
        create_topics(kafka, {f"new-{number}": 4})
        reader = Consumer({"bootstrap.servers": kafka, "group.id": "new"})
        for partition in range(4):
            place = TopicPartition(f"new-{number}", partition)
            assert reader.get_watermark_offsets(place, timeout=DEADLINE_S) == (0, 0)
        reader.close()


def test_partitions_that_a_topic_gets_later_are_known_to_a_client_that_knew_it_before(kafka):
    create_topics(kafka, {"grows": 1})
    with contextlib.closing(asking({"bootstrap.servers": kafka})) as client:
        assert end_offsets(client, [("grows", 0)]) == {("grows", 0): 0}
        admin = admin_of(kafka)  # its calls end with it
        admin.create_partitions([NewPartitions("grows", 2)])["grows"].result(DEADLINE_S)
        assert end_offsets(client, [("grows", 1)]) == {("grows", 1): 0}


def test_a_client_that_stays_connected_sees_a_topic_go_and_come_again_with_another_id_and_fewer_partitions(kafka):
    create_topics(kafka, {"anew": 2})
    broker, admin = KafkaTopics({"bootstrap.servers": kafka}, DEADLINE_S), admin_of(kafka)
    before, silent = broker.ids(["anew"])
    assert (before.keys(), silent, broker.partitions()["anew"]) == ({"anew"}, set(), {0, 1})
    assert broker.ends([("anew", 1)]) == {("anew", 1): 0}
    admin.delete_topics(["anew"])["anew"].result(DEADLINE_S)
    end = time.monotonic() + DEADLINE_S
    while (gone := broker.ids(["anew"])) != ({}, set()):
        assert time.monotonic() < end, gone
    create_topics(kafka, {"anew": 1})
    after, silent = broker.ids(["anew"])
    assert (after.keys(), silent, broker.partitions()["anew"]) == ({"anew"}, set(), {0})
    assert after != before


def test_a_killed_parent_takes_its_broker_along_and_a_taken_port_is_no_obstacle(tmp_path, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path / "broker"], stdout=subprocess.PIPE) as parent:
        pid, bootstrap = parent.stdout.readline().split()
        parent.kill()
    port = int(bootstrap.decode().split(":")[1])
    await_end(int(pid), port)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        other, free = taken.getsockname()[1], free_ports("127.0.0.1", 2)
        offers = [[free[0], other], [other, free[1]], free]
        monkeypatch.setattr(module, "free_ports", lambda _host, _number: offers.pop(0))
        with embedded(tmp_path / "broker") as broker:
            assert broker.bootstrap == f"127.0.0.1:{free[0]}"
            assert not offers


def test_a_broker_at_another_ones_port_is_not_taken_for_it(tmp_path, kafka, monkeypatch):
    free = free_ports("127.0.0.1", 2)
    offers = [[int(kafka.rpartition(":")[2]), free[1]], free]
    monkeypatch.setattr(module, "free_ports", lambda _host, _number: offers.pop(0))
    with embedded(tmp_path / "broker") as broker:
        assert broker.bootstrap == f"127.0.0.1:{free[0]}"


def test_a_broker_that_cannot_start_says_why(tmp_path):
    (tmp_path / "broker" / "data").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"The broker did not start: .*broker\.log"):
        embedded(tmp_path / "broker").start()
    with pytest.raises(UsageError, match="The broker cannot be started in"):
        EmbeddedBroker(tmp_path, [], tmp_path / "no-java").start()


def test_a_broker_elsewhere_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(module, "_REACH_DEADLINE_S", 0.5)
    with pytest.raises(UsageError, match=r"The broker at 127\.0\.0\.1:1 does not answer within .*--bootstrap-servers"):
        ExternalBroker("127.0.0.1:1").start()


def test_a_session_that_fails_leaves_no_broker_behind(tmp_path):
    def fails():
        raise UsageError("no session")

    with pytest.raises(UsageError, match="no session"), bring_up(tmp_path, session=fails):
        pytest.fail("nothing is up")
    assert (tmp_path / "broker" / "data").exists()
    assert not working_on(tmp_path)


@pytest.mark.parametrize("options", [{}, {"message.max.bytes": "4000000"}], ids=["client", "topic"])
def test_a_result_that_is_too_large_is_refused_with_what_lets_it_through(kafka, options):
    topic = NewTopic(f"small-{len(options)}", 1, 1, config={"max.message.bytes": "1000000"})
    admin = admin_of(kafka)
    for made in admin.create_topics([topic]).values():
        made.result(DEADLINE_S)
    large = Results(np.zeros(1, np.int32), [b"k"], [b"x" * 1_500_000])
    with pytest.raises(StateError, match=r"one has 1,500,000 bytes; for larger ones .*max\.message\.bytes=3000000"):
        Output(kafka, topic.topic, 1, options).send(large, bins=1, worker=0, generation=0, epoch=0, first=0, commit=0)
