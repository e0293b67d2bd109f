"""A load goes on past its planned end while something is outstanding, on the same schedule and up to a limit."""

import os
import subprocess
import sys
import time

import pytest
from topics import DEADLINE_S, contents

from generators.clock import now_us
from generators.keys import make_keys
from generators.rates import make_schedule
from generators.stream import Share, Stream
from harness.experiment.description import LOAD_MOST, Experiment
from harness.files import read_json
from harness.run.load import LoadGenerator, schedule
from impls.errors import UsageError

RATE, SECONDS = 400, 3.0


@pytest.fixture
def consumer(kafka):
    from confluent_kafka import Consumer

    reader = Consumer({"bootstrap.servers": kafka, "group.id": "load", "enable.auto.commit": False})
    yield reader
    reader.close()


def sent(kafka, topic, folder, waits_for, shape="constant", resume=False, **more):
    """Carries a load out and returns load.json and generator.json."""
    experiment = Experiment(rate=RATE, rate_shape=shape, duration_s=SECONDS, lead_in_s=0.5, keys=1000)
    load = {**schedule(folder, experiment, topic), **more}
    with LoadGenerator(folder, kafka, load, resume=resume, waits_for=lambda: waits_for(load)) as generator:
        end = time.monotonic() + DEADLINE_S
        while not generator.finished():
            assert time.monotonic() < end, "the generator did not end"
            time.sleep(0.05)
    return read_json(folder / "load.json"), read_json(folder / "generator.json")


def test_the_generator_goes_first_where_that_is_allowed(kafka, topic_factory, tmp_path):
    command = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
    tried = subprocess.run([sys.executable, "-c", command], check=False)
    if tried.returncode:
        pytest.skip("no process may be given a higher priority here")
    load = schedule(tmp_path, Experiment(rate=RATE, duration_s=SECONDS, lead_in_s=0.5, keys=1000), topic_factory(2))
    with LoadGenerator(tmp_path, kafka, load, resume=False, waits_for=None) as generator:
        assert os.sched_getscheduler(generator.pid) == os.SCHED_RR


def stream(load, shape):
    """Values of each partition, straight from the definition of the stream."""
    keys = make_keys("uniform", 1000, 1.0, 1)
    made = Stream(keys, make_schedule(shape, RATE, 0.5), load["start_us"], load["records"])
    values = [v for block in made.blocks(Share(0, 1, 2), [0, 0], 1000) for v in block.values]
    return [values[p::2] for p in range(2)]


def test_nothing_outstanding_leaves_the_load_as_it_was_planned(kafka, topic_factory, tmp_path):
    load, told = sent(kafka, topic_factory(2), tmp_path, lambda _: "")
    assert told["records"] == load["records"] == int(3.5 * RATE)
    assert load["end_s"] == load["planned_s"] == 3.5
    assert "unmet" not in load


def test_a_load_without_a_start_begins_when_the_generator_is_ready(kafka, topic_factory, consumer, tmp_path):
    topic, before = topic_factory(2), now_us()
    load, told = sent(kafka, topic, tmp_path, lambda _: "", start_us=0)
    assert load["start_us"] > before
    assert (told["records"], told["early"]) == (load["records"], 0)
    assert contents(consumer, topic) == stream(load, "constant")


def test_a_generator_that_fails_before_its_start_says_why(kafka, tmp_path):
    with pytest.raises(UsageError, match="The generator failed: The topic 'nowhere' does not exist"):
        sent(kafka, "nowhere", tmp_path, lambda _: "", start_us=0)


@pytest.mark.parametrize("shape", ["constant", "sine:period=2", "csv"])
def test_it_goes_on_by_whole_seconds_on_the_same_schedule(kafka, topic_factory, consumer, tmp_path, shape):
    if shape == "csv":
        (tmp_path / "mine.csv").write_text("0,200\n2,600\n3,300\n")  # the last rate holds behind the file's end
        shape = f"csv:{tmp_path / 'mine.csv'}"
    topic = topic_factory(2)
    waits_for = lambda load: "steady state was not back" if load["end_s"] < 5.5 else ""  # noqa: E731
    load, told = sent(kafka, topic, tmp_path / "run", waits_for, shape)
    assert (load["planned_s"], load["end_s"]) == (3.5, 5.5)
    assert len(load["due_by_second"]) == 5
    assert told["records"] == load["records"] > make_schedule(shape, RATE, 0.5).records_until(3_500_000 - 1)
    assert contents(consumer, topic) == stream(load, shape)
    load, again = sent(kafka, topic, tmp_path / "run", lambda _: "", shape, resume=True)
    assert (again["records"], again["already_there"]) == (0, load["records"])


def test_at_its_limit_it_ends_and_says_what_for(kafka, topic_factory, tmp_path):
    load, told = sent(kafka, topic_factory(2), tmp_path, lambda _: "no record had crossed the migration 'back'")
    assert load["end_s"] == load["most_s"] == 0.5 + LOAD_MOST * SECONDS
    assert load["unmet"] == "no record had crossed the migration 'back'"
    assert told["records"] == load["records"] == RATE * load["most_s"]
