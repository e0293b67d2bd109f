"""Memory of real processes by role; one that vanishes is left out and nothing is raised."""

import os
import subprocess
import sys
import threading

import pytest

from harness.files import read_lines
from harness.measure.memory import (
    MemorySampler,
    PythonWorkers,
    _other_memory,
    children,
    command_line,
    executors_of,
    memory_entries,
    memory_of,
    peaks,
)

MIB = 1 << 20
HOLD = "import sys; held = bytearray(int(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"
FORKS = """
import os, sys
readers = [os.pipe() for _ in range(2)]
for read, write in readers:
    if os.fork() == 0:
        held = bytearray(int(sys.argv[1]))
        os.write(write, b"x")
        sys.stdin.read()
        os._exit(0)
for read, _ in readers:
    os.read(read, 1)
print("ready", flush=True)
sys.stdin.read()
"""
DEADLINE_S = 20.0


@pytest.fixture
def process():
    """Starts a Python program that holds memory until its standard input ends."""
    started = []

    def start(text, size=0, *named):
        one = subprocess.Popen(
            [sys.executable, "-c", text, str(size), *named], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(one)
        assert one.stdout.readline() == b"ready\n"
        return one

    yield start
    for one in started:
        one.stdin.close()
        one.stdout.close()
        one.wait(DEADLINE_S)


def test_held_memory_is_resident_and_anonymous(process):
    rss, anon = memory_of(process(HOLD, 64 * MIB).pid)
    assert 64 * MIB < anon <= rss < 256 * MIB


def test_other_systems_see_the_same_within_a_tenth(process):
    pid = process(HOLD, 64 * MIB).pid
    assert _other_memory(pid) == pytest.approx(memory_of(pid), rel=0.1)


def test_a_process_that_is_gone_has_no_memory_and_no_children(process):
    one = process(HOLD)
    one.stdin.close()
    one.wait(DEADLINE_S)
    assert memory_of(one.pid) is None
    assert _other_memory(one.pid) is None
    assert children(one.pid) == []
    assert command_line(one.pid) == ""


def test_forks_of_a_python_child_are_workers(process):
    daemon = process(FORKS, 32 * MIB, "pyspark.daemon")
    process(HOLD, 0, "something else")
    workers = PythonWorkers()
    workers.look([os.getpid()])
    found = workers.memory()
    assert len(found) == 3
    assert sum(anon > 32 * MIB for _, anon in found) == 2
    daemon.stdin.close()
    daemon.wait(DEADLINE_S)
    assert len(workers.memory()) == 0


def test_executors_of_an_application_are_found_and_their_forks_are_workers(process, tmp_path):
    program = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    executor = process(HOLD, 24 * MIB, program, "--app-id", "app-7")
    for named in ((program, "--app-id", "app-8"), ("another.Program", "--app-id", "app-7")):
        process(HOLD, 0, *named)
    assert executors_of("app-7") == [executor.pid]
    process(FORKS, 32 * MIB, "pyspark.daemon")
    sampler = MemorySampler(
        tmp_path / "memory.jsonl", roles={"jvm": lambda: None}, executors=lambda: [executor.pid, os.getpid()]
    )
    roles = sampler.sample()
    assert roles.keys() == {"driver", "executor", "worker", "worker_max"}
    assert roles["worker"]["anon"] > 64 * MIB
    own = memory_of(os.getpid())[0]
    assert roles["executor"]["rss"] == pytest.approx(own + memory_of(executor.pid)[0], rel=0.1)


def test_sampler_writes_roles_until_it_is_left(process, tmp_path):
    broker, workers = process(HOLD, 16 * MIB), process(FORKS, 48 * MIB, "pyspark.daemon")
    path, enough = tmp_path / "memory.jsonl", threading.Event()
    asked = []

    def jvm():
        asked.append(None)
        if len(asked) > 1:
            enough.set()
        return os.getpid()

    with MemorySampler(path, broker_pid=broker.pid, generator_pid=None, roles={"jvm": jvm}, period_s=0.01):
        assert enough.wait(DEADLINE_S), f"waited {DEADLINE_S} s for the second look at the processes"
        broker.stdin.close()
        broker.wait(DEADLINE_S)
        workers.stdin.close()
        workers.wait(DEADLINE_S)
        seen = len(asked)
        enough.clear()
        assert enough.wait(DEADLINE_S), "waited for a look after two processes had vanished"
    assert len(asked) > seen
    lines = read_lines(path)
    assert lines[0]["roles"].keys() == {"broker", "driver", "jvm", "worker", "worker_max"}
    assert lines[-1]["roles"].keys() == {"driver", "jvm"}
    assert lines[0]["roles"]["worker"]["anon"] > 96 * MIB > lines[0]["roles"]["worker_max"]["anon"] > 48 * MIB
    assert [line["at_us"] for line in lines] == sorted(line["at_us"] for line in lines)
    assert not [thread for thread in threading.enumerate() if thread.name == "memory-sampler"]


def test_it_samples_at_least_four_times_a_second():
    from harness.measure.memory import PERIOD_S

    assert PERIOD_S <= 0.25


SAMPLES = [
    {"at_us": 100, "roles": {"jvm": {"rss": 10 * MIB, "anon": 9 * MIB}, "worker": {"rss": MIB, "anon": MIB}}},
    {"at_us": 200, "roles": {"jvm": {"rss": 30 * MIB, "anon": 4 * MIB}}},
    {"at_us": 300, "roles": {"jvm": {"rss": 20 * MIB, "anon": 8 * MIB}}},
]


def test_peak_is_the_highest_sample_of_a_role():
    assert peaks(SAMPLES) == {"jvm": 30 * MIB, "worker": MIB}
    assert peaks(SAMPLES, "anon") == {"jvm": 9 * MIB, "worker": MIB}
    assert peaks([]) == {}


def test_each_epoch_has_a_histogram_of_each_role():
    epochs = [{"begin_us": 50, "end_us": 250}, {"begin_us": 250, "end_us": 260}, {"begin_us": 260, "end_us": 400}]
    entries = list(memory_entries(SAMPLES, epochs))
    assert [(e.tag, e.begin_us, e.values.tolist()) for e in entries] == [
        ("jvm", 50, [10 << 10, 30 << 10]),
        ("worker", 50, [1 << 10]),
        ("jvm", 260, [20 << 10]),
    ]
