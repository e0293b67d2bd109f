"""The producer process against a real broker: the exact stream, lag, shares, resuming, stopping and refusing."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from processes import spawn
from topics import DEADLINE_S, contents, ends

from generators.clock import now_us
from generators.keys import make_keys
from generators.rates import make_schedule
from generators.stream import NUMBER_BYTES, Share, Stream
from harness.lab.bringup import embedded_broker
from harness.lab.topics import create_topics

ROOT = Path(__file__).parents[2]
KEYS, SEED, RATE = 100_000, 7, 20_000


def start(kafka, topic, out, records, *, start_us, rate=RATE, extra=()):
    command = [
        sys.executable, "-m", "generators.producer", "--bootstrap-servers", kafka, "--topic", topic, "--rate", rate,
        "--records", records, "--keys", KEYS, "--distribution", "zipf", "--seed", SEED, "--start-us", start_us,
        "--out", out, *extra,
    ]  # fmt: skip
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return spawn(command, cwd=ROOT, text=True, **pipes)


def finish(process):
    """Returns (exit code, what it printed)."""
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out + err


def run(*args, **kwargs):
    return finish(start(*args, **kwargs))


def expected(records, start_us, rate=RATE, partitions=2, distribution="zipf", shape="constant", lead_s=0.0):
    """Values of each partition, straight from the definition of the stream."""
    keys = make_keys(distribution, KEYS, 1.0, SEED)
    stream = Stream(keys, make_schedule(shape, rate, lead_s), start_us, records)
    values = [v for block in stream.blocks(Share(0, 1, partitions), [0] * partitions, 1000) for v in block.values]
    assert all(len(value) == 2 * NUMBER_BYTES for value in values)
    return [values[p::partitions] for p in range(partitions)]


@pytest.fixture
def consumer(kafka):
    reader = Consumer({"bootstrap.servers": kafka, "group.id": "test", "enable.auto.commit": False})
    yield reader
    reader.close()


def wait_for(consumer, topic, records):
    end = time.monotonic() + DEADLINE_S
    while sum(ends(consumer, topic)) < records:
        assert time.monotonic() < end, f"{topic} did not reach {records} records in {DEADLINE_S} s"


def test_the_topic_holds_exactly_the_stream(kafka, topic_factory, consumer, tmp_path):
    topic, begin = topic_factory(2), now_us() + 1_500_000
    files = ("--lag-log", tmp_path / "lag.npy", "--progress", tmp_path / "progress.jsonl")
    code, printed = run(kafka, topic, tmp_path / "generator.json", 30_001, start_us=begin, extra=files)
    assert (code, printed) == (0, "")
    assert contents(consumer, topic) == expected(30_001, begin)
    result = json.loads((tmp_path / "generator.json").read_text())
    assert result["records"] == 30_001
    assert (result["early"], result["refused"], result["undelivered"]) == (0, 0, 0)
    lags = np.load(tmp_path / "lag.npy")
    assert len(lags) == 30_001
    assert lags.min() >= 0
    assert result["lag_ms"]["max"] == lags.max() / 1000
    assert result["lag_ms"]["p999"] == pytest.approx(np.percentile(lags, 99.9) / 1000, rel=0.02, abs=1)
    told = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert told[-1]["produced"] == 30_001
    assert [line["produced"] for line in told] == sorted(line["produced"] for line in told)
    assert not list(tmp_path.glob(".*"))


def test_records_wait_for_their_time(kafka, topic_factory, tmp_path):
    begin = now_us() + 1_500_000
    assert run(kafka, topic_factory(2), tmp_path / "g.json", 1000, start_us=begin, rate=1000)[0] == 0
    assert now_us() >= begin + 999_000


def test_two_shares_send_the_stream_of_one(kafka, topic_factory, consumer, tmp_path):
    topic, begin = topic_factory(4), now_us() + 1_500_000
    shares = [
        start(
            kafka,
            topic,
            tmp_path / f"g{i}.json",
            20_000,
            start_us=begin,
            extra=("--partitions", 4, "--share", f"{i}/2"),
        )
        for i in range(2)
    ]
    assert [finish(share) for share in shares] == [(0, ""), (0, "")]
    assert contents(consumer, topic, 4) == expected(20_000, begin, partitions=4)


@pytest.mark.capability
def test_a_changing_rate_and_drifting_keys_are_resumed_and_split_too(kafka, topic_factory, consumer, tmp_path):
    topic, begin = topic_factory(2), now_us() + 1_500_000
    how = {"distribution": "drift:share=0.5", "shape": "step:0.5=5", "lead_s": 0.25}
    more = ("--distribution", how["distribution"], "--rate-shape", how["shape"], "--lead-in", how["lead_s"])
    for number in range(2):  # one share after the other: what fell due meanwhile is sent at once
        share = ("--share", f"{number}/2", *more)
        out = tmp_path / f"g{number}.json"
        assert run(kafka, topic, out, 4000, start_us=begin, rate=2000, extra=share) == (0, "")
        assert run(kafka, topic, out, 6000, start_us=begin, rate=2000, extra=(*share, "--resume")) == (0, "")
    assert contents(consumer, topic) == expected(6000, begin, rate=2000, **how)
    code, printed = run(kafka, topic, out, 7000, start_us=begin, rate=2000, extra=("--resume", *more[:2]))
    assert code == 2
    assert "another record" in printed


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_stream_cut_off_is_resumed_without_gap_or_repeat(kafka, topic_factory, consumer, tmp_path, ending):
    topic, begin, out = topic_factory(2), now_us() + 1_000_000, tmp_path / "generator.json"
    first = start(kafka, topic, out, 60_000, start_us=begin)
    wait_for(consumer, topic, 5000)
    first.send_signal(ending)
    code, printed = finish(first)
    assert printed == ""
    if ending == signal.SIGKILL:
        assert not out.exists()
    else:
        assert code == 0
        assert json.loads(out.read_text())["records"] == sum(ends(consumer, topic))
    there = sum(ends(consumer, topic))
    assert 5000 <= there < 60_000
    assert run(kafka, topic, out, 60_000, start_us=begin, extra=("--resume",)) == (0, "")
    result = json.loads(out.read_text())
    assert result["already_there"] >= there
    assert result["records"] + result["already_there"] == 60_000
    assert contents(consumer, topic) == expected(60_000, begin)


def test_it_ends_when_standard_input_closes(kafka, topic_factory, consumer, tmp_path):
    topic, out = topic_factory(2), tmp_path / "generator.json"
    process = start(kafka, topic, out, 10**9, start_us=now_us(), rate=1000, extra=("--watch-stdin",))
    wait_for(consumer, topic, 100)
    assert finish(process) == (0, "")  # communicate() closes standard input
    assert json.loads(out.read_text())["records"] == sum(ends(consumer, topic))


def test_it_rests_while_the_broker_takes_nothing(tmp_path):
    with embedded_broker(tmp_path / "broker") as broker:
        create_topics(broker.bootstrap, {"in": 2})
        out = tmp_path / "generator.json"
        process = start(broker.bootstrap, "in", out, 10**9, start_us=now_us(), rate=1000, extra=("--watch-stdin",))
        with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})) as reader:
            wait_for(reader, "in", 1000)
        used = psutil.Process(process.pid).cpu_times
        os.kill(broker.pid, signal.SIGSTOP)
        before, begun = used(), time.monotonic()
        time.sleep(2)
        after, passed_s = used(), time.monotonic() - begun
        os.kill(broker.pid, signal.SIGCONT)
        assert finish(process) == (0, "")
    assert after.user + after.system - before.user - before.system < passed_s / 2  # a thread that spins takes all


def test_a_finished_stream_is_resumed_to_nothing_and_another_one_is_refused(kafka, topic_factory, consumer, tmp_path):
    topic, begin, out = topic_factory(2), now_us(), tmp_path / "g.json"
    assert run(kafka, topic, out, 2000, start_us=begin)[0] == 0
    code, printed = run(kafka, topic, out, 2000, start_us=begin)
    assert code == 2
    assert "holds records already" in printed
    assert run(kafka, topic, out, 2000, start_us=begin, extra=("--resume",)) == (0, "")
    assert json.loads(out.read_text())["records"] == 0
    code, printed = run(kafka, topic, out, 2000, start_us=begin, extra=("--resume", "--seed", SEED + 1))
    assert code == 2
    assert "another record" in printed
    code, printed = run(kafka, topic, out, 1000, start_us=begin, extra=("--resume",))
    assert code == 2
    assert contents(consumer, topic) == expected(2000, begin)


def test_a_record_the_broker_refuses_is_counted_and_ends_the_run(kafka, topic_factory, tmp_path):
    topic, out = topic_factory(2), tmp_path / "g.json"
    limit = ConfigEntry("max.message.bytes", "50", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[limit])
    admin = AdminClient({"bootstrap.servers": kafka})  # kept until its answer is there
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(timeout=10)
    code, printed = run(kafka, topic, out, 10**9, start_us=now_us(), rate=1000)
    assert code == 1
    assert "were not delivered" in printed
    assert json.loads(out.read_text())["undelivered"] > 0


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (("--keys", 0), "number of keys"),
        (("--distribution", "normal"), "uniform, zipf, drift"),
        (("--rate", 0), "rate"),
        (("--rate", 2_000_000), "at most 1000000"),
        (("--rate-shape", "spike:factor=100"), "at most 1000000"),
        (("--rate-shape", "square"), "use one of constant, step"),
        (("--lead-in", -1, "--rate-shape", "sine"), "lead-in"),
        (("--records", -1), "number of records"),
        (("--partitions", 3), "has 2 partitions, not 3"),
        (("--share", "0/3"), "cannot be divided"),
        (("--topic", "not-there"), "does not exist"),
        (("--out", "/no/such/folder/g.json"), "does not exist"),
        (("--resume", "--start-us", 0), "--start-us"),
        (("--seed", "one"), "command line"),
        (("--bootstrap-servers", "127.0.0.1:9"), "does not answer"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(kafka, topic_factory, tmp_path, extra, says):
    code, printed = run(kafka, topic_factory(2), tmp_path / "g.json", 10, start_us=now_us(), extra=extra)
    assert code == 2
    assert says in printed
    assert len(printed.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def plain_rate(kafka, topic, records):
    """Records a second of a loop around the client alone, on the machine as it is now."""
    producer = Producer({"bootstrap.servers": kafka, "queue.buffering.max.messages": records, "linger.ms": 5})
    begin = time.perf_counter()
    for _ in range(records):
        producer.produce(topic, bytes(32))
    assert producer.flush(60) == 0
    return records / (time.perf_counter() - begin)


@pytest.mark.stress
def test_one_process_sends_a_third_of_what_the_client_alone_does(kafka, topic_factory, tmp_path):
    """That is 200,000 records a second and more on a quiet machine; a busy one slows both."""
    out, topic = tmp_path / "g.json", topic_factory(2)
    before = plain_rate(kafka, topic_factory(2), 300_000)
    code, _ = run(kafka, topic, out, 1_000_000, start_us=now_us() - 60_000_000, rate=1_000_000)
    result = json.loads(out.read_text())
    assert code == 0
    slower = min(before, plain_rate(kafka, topic_factory(2), 300_000))
    assert result["records"] / result["elapsed_s"] > slower / 3
