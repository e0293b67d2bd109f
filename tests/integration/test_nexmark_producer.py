"""The producer process with a NEXMark stream against a real broker: exact, split, preloaded, resumed, refused, fast."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from generators.clock import now_us
from generators.nexmark.profile import make_profile
from generators.nexmark.stream import NexmarkStream
from generators.rates import make_schedule
from generators.stream import Share

ROOT = Path(__file__).parents[2]
RATE, DEADLINE_S = 20_000, 90
LARGE = "large-state:auctions=3000"


def command(kafka, topic, out, records, extra=()):
    options = [
        sys.executable, "-m", "generators.producer", "--workload", "nexmark", "--bootstrap-servers", kafka,
        "--topic", topic, "--rate", RATE, "--records", records, "--seed", 7, "--out", out, *extra,
    ]  # fmt: skip
    return [str(option) for option in options]


def run(*args):
    """Returns (exit code, what it printed)."""
    found = subprocess.run(
        command(*args),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return found.returncode, found.stdout + found.stderr


def expected(records, start_us, partitions=2, profile="default", shape="constant", event_us=None, **options):
    """Values of each partition, straight from the definition of the stream."""
    stream = NexmarkStream(
        make_profile(profile, RATE, **options), make_schedule(shape, RATE), RATE, 7,
        start_us=start_us, records=records, event_start_us=event_us,
    )  # fmt: skip
    values = [v for block in stream.blocks(Share(0, 1, partitions), [0] * partitions, 1000) for v in block.values]
    return [values[p::partitions] for p in range(partitions)]


@pytest.fixture
def contents(kafka):
    """Reads a topic: contents(topic, records) returns the values of its two partitions, in the order of offsets.

    With `part` it returns that of each message instead.
    """
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "nexmark", "enable.auto.commit": False})

    def read(topic, records, part=Message.value):
        consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
        out = [[], []]
        end = time.monotonic() + DEADLINE_S
        while sum(map(len, out)) < records:
            assert time.monotonic() < end, f"only {sum(map(len, out))} of {records} records could be read"
            for message in consumer.consume(10_000, 1.0):
                assert message.error() is None
                out[message.partition()].append(part(message))
        return out

    yield read
    consumer.close()


@pytest.mark.capability
def test_two_shares_send_exactly_the_stream(kafka, topic_factory, contents, tmp_path):
    topic, begin = topic_factory(2), now_us() + 2_000_000
    how = ("--start-us", begin, "--rate-shape", "step:0.2=3", "--out-of-order", "delay=0.3", "--bid-channels")
    for n in range(2):
        assert run(kafka, topic, tmp_path / f"{n}.json", 9000, (*how, "--share", f"{n}/2")) == (0, "")
    assert contents(topic, 9000) == expected(9000, begin, shape="step:0.2=3", out_of_order="delay=0.3", channels=True)


def test_no_event_is_sent_before_it_is_due_in_any_second(kafka, topic_factory, contents, tmp_path):
    """DRRS sends the events of a second back to back, and later ones without a pause."""
    topic, begin, out = topic_factory(2), now_us() + 2_000_000, tmp_path / "g.json"
    assert run(kafka, topic, out, 3000, ("--rate", 1000, "--start-us", begin)) == (0, "")
    messages = contents(topic, 3000, lambda message: (message.timestamp()[1], message.value()))
    sent = [(at_ms, json.loads(value)["scheduled_us"]) for part in messages for at_ms, value in part]
    assert sorted(due_us for _, due_us in sent) == [begin + n * 1000 for n in range(3000)]
    assert min(at_ms - due_us // 1000 for at_ms, due_us in sent) >= 0
    assert json.loads(out.read_text())["early"] == 0


def test_a_preload_is_sent_first_and_the_clock_starts_later(kafka, topic_factory, contents, tmp_path):
    topic, event_us, out = topic_factory(2), now_us(), tmp_path / "g.json"
    how = ("--profile", LARGE, "--event-start-us", event_us)
    assert run(kafka, topic, out, 5000, (*how, "--preload-only")) == (0, "")
    sent = json.loads(out.read_text())
    assert sent["records"] == 0
    assert sent["preload"] > 3000
    begin = now_us() + 2_000_000
    assert run(kafka, topic, out, 5000, (*how, "--start-us", begin, "--resume")) == (0, "")
    result = json.loads(out.read_text())
    assert (result["records"], result["preload"], result["already_there"]) == (5000, 0, sent["preload"])
    assert contents(topic, 5000 + sent["preload"]) == expected(5000, begin, profile=LARGE, event_us=event_us)


def test_a_start_not_given_is_behind_the_preload(kafka, topic_factory, contents, tmp_path):
    topic, out = topic_factory(2), tmp_path / "g.json"
    assert run(kafka, topic, out, 3000, ("--profile", LARGE)) == (0, "")
    result = json.loads(out.read_text())
    assert result["records"] == 3000
    assert result["backlog"] == 0  # the measured ones were not due yet when the preload was there
    values = contents(topic, 3000 + result["preload"])
    assert sum(map(len, values)) == 3000 + result["preload"]


def test_a_preload_cut_off_is_resumed(kafka, topic_factory, contents, tmp_path):
    topic, event_us, out = topic_factory(2), now_us(), tmp_path / "g.json"
    values = expected(0, 0, profile=LARGE, event_us=event_us)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka})
    for p, number in enumerate((700, 1300)):
        for value in values[p][:number]:
            producer.produce(topic, value, partition=p)
    assert producer.flush(10) == 0
    how = ("--profile", LARGE, "--event-start-us", event_us, "--preload-only", "--resume")
    assert run(kafka, topic, out, 0, how) == (0, "")
    assert json.loads(out.read_text())["already_there"] == 2000
    assert contents(topic, sum(map(len, values))) == values


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (("--workload", "tpc"), "key-count, nexmark"),
        (("--workload", "key-count"), "--keys"),
        (("--profile", "huge"), "default, large-state"),
        (("--out-of-order", "group=0"), "group"),
        (("--preload-only", "--resume"), "--event-start-us"),
        (("--resume",), "--start-us"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(kafka, topic_factory, tmp_path, extra, says):
    code, printed = run(kafka, topic_factory(2), tmp_path / "g.json", 10, extra)
    assert code == 2
    assert says in printed
    assert len(printed.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.stress
def test_one_process_sends_100_000_events_a_second(kafka, topic_factory, tmp_path):
    out = tmp_path / "g.json"
    extra = ("--rate", 1_000_000, "--start-us", now_us() - 60_000_000)  # all are due at once
    assert run(kafka, topic_factory(2), out, 1_000_000, extra) == (0, "")
    result = json.loads(out.read_text())
    assert result["records"] / result["elapsed_s"] > 100_000
