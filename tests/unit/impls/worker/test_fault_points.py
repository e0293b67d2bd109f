"""Fault points: an armed fault fires once, in one process, and only where its conditions hold."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from processes import spawn

from harness.files import ROOT
from harness.lab.processes import VARIABLE, Arming
from impls.faults import POINTS, fault, install

WALK = """
import sys, time
from impls.faults import fault
for epoch in range(3):
    for point in sys.argv[1:]:
        fault(point, query="q", worker=1, epoch=epoch, migrating=epoch > 0)
print("alive", flush=True)
"""
DEADLINE_S = 30.0


def walk(file: Path | None, *points: str) -> subprocess.Popen[str]:
    """Starts a process that comes to the points in epochs 0 to 2 as worker 1 of q; the last two are in a migration."""
    env = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if file is not None:
        env[VARIABLE] = str(file)
    return spawn([sys.executable, "-c", WALK, *points], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def arming(tmp_path):
    return Arming(tmp_path / "fault.json")


def await_status(pid: int, status: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while psutil.Process(pid).status() != status:
        assert time.monotonic() < end, f"waited for process {pid} to be {status}"
        time.sleep(0.01)


def test_without_the_variable_nothing_happens(arming):
    arming.arm("a", victim="worker", point="after-commit", pids={})
    process = walk(None, *POINTS)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "alive\n")
    assert arming.file.exists()


def test_without_a_file_nothing_happens(arming):
    process = walk(arming.file, *POINTS)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "alive\n")


def test_a_fault_kills_once_and_says_when(arming):
    arming.arm("a", victim="worker", point="after-commit", pids={})
    first = walk(arming.file, "before-results", "after-commit")
    first.communicate(timeout=DEADLINE_S)
    assert first.returncode == -signal.SIGKILL
    fired = arming.fired("a")
    assert (fired["pid"], fired["point"], fired["epoch"], fired["worker"]) == (first.pid, "after-commit", 0, 1)
    assert 0 <= time.time_ns() // 1000 - fired["at_us"] < DEADLINE_S * 1e6
    assert not arming.file.exists()
    second = walk(arming.file, "after-commit")
    second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 0


def test_one_of_many_processes_takes_the_fault(arming):
    arming.arm("a", victim="worker", point="after-commit", pids={})
    processes = [walk(arming.file, "after-commit") for _ in range(4)]
    for process in processes:
        process.communicate(timeout=DEADLINE_S)
    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, 0, 0, 0]
    assert len((arming.file.with_name("fault.json.fired")).read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("conditions", "epoch"),
    [
        ({"worker": 1}, 0),
        ({"query": "q", "after_epoch": 0}, 1),
        ({"query": "another"}, None),
        ({"migrating": True}, 1),
        ({"migrating": False}, 0),
        ({"after_epoch": 1}, 2),
        ({"worker": 1, "migrating": True, "after_epoch": 0}, 1),
        ({"worker": 2}, None),
        ({"migrating": True, "after_epoch": 2}, None),
    ],
)
def test_a_fault_fires_only_where_its_conditions_hold(arming, conditions, epoch):
    arming.arm("a", victim="worker", point="before-report", pids={}, conditions=conditions)
    process = walk(arming.file, "after-commit", "before-report")
    process.communicate(timeout=DEADLINE_S)
    fired = arming.fired("a")
    assert (fired["epoch"] if fired else None) == epoch
    assert process.returncode == (0 if epoch is None else -signal.SIGKILL)
    assert arming.file.exists() == (epoch is None)


def test_another_victim_is_dead_when_the_process_goes_on(arming):
    victim = spawn([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    arming.arm("a", victim="broker", point="before-results", pids={"broker": victim.pid, "jvm": os.getpid()})
    process = walk(arming.file, "before-results")
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "alive\n")
    assert victim.poll() == -signal.SIGKILL
    assert arming.fired("a")["pid"] == victim.pid
    victim.stdin.close()


def test_a_victim_that_is_dead_already_is_no_failure(arming):
    victim = spawn([sys.executable, "-c", ""])
    victim.wait(DEADLINE_S)
    arming.arm("a", victim="jvm", point="before-results", pids={"jvm": victim.pid})
    process = walk(arming.file, "before-results")
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert arming.fired("a") is not None


def test_a_stopped_process_is_deaf_to_the_death_of_its_parent_and_goes_on_when_woken(arming):
    arming.arm("a", victim="worker", point="after-commit", pids={}, action="stop")
    process = walk(arming.file, "after-commit")
    await_status(process.pid, psutil.STATUS_STOPPED)
    for number in (signal.SIGHUP, signal.SIGTERM):
        process.send_signal(number)
    assert arming.fired("a")["pid"] == process.pid
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "alive\n")


def test_a_disarmed_fault_does_not_fire(arming):
    arming.arm("a", victim="worker", point="after-commit", pids={})
    arming.disarm()
    arming.disarm()
    process = walk(arming.file, "after-commit")
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert arming.fired("a") is None


def test_a_hook_sees_point_and_context_until_it_is_taken_away():
    seen = []
    install(lambda point, context: seen.append((point, context)))
    try:
        fault("after-plan", epoch=3)
    finally:
        install(None)
    fault("after-plan", epoch=4)
    assert seen == [("after-plan", {"epoch": 3})]


def test_a_held_process_waits_where_it_is_until_it_is_released(arming):
    arming.release()  # of an earlier fault: it counts no more
    arming.arm("a", victim="worker", point="after-commit", pids={}, action="hold")
    process = walk(arming.file, "after-commit")
    end = time.monotonic() + DEADLINE_S
    while arming.fired("a") is None:
        assert time.monotonic() < end, "waited for the fault"
        time.sleep(0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.5)
    arming.release()
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "alive\n")
