"""A guarded child ends with its parent, with its guard, on request, and never by Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from harness import guard

DEADLINE_S = 10.0
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 1 & wait $!; done"


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_gone(pid: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while runs(pid):
        assert time.monotonic() < end, f"process {pid} still runs after {DEADLINE_S} s"
        time.sleep(0.01)


def test_the_exit_code_comes_through():
    with guard.spawn(["sh", "-c", "exit 7"]) as child:
        assert child.wait(DEADLINE_S) == 7
        assert child.poll() == 7


def test_stop_ends_the_child_and_its_children():
    with guard.spawn(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE) as child:
        grandchild = int(child._guard.stdout.readline())
        assert child.poll() is None
        assert child.stop() == 128 + signal.SIGTERM
    child._guard.stdout.close()
    assert_gone(child.pid)
    assert_gone(grandchild)


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace():
    with guard.spawn(["sh", "-c", STUBBORN], stdout=subprocess.PIPE, grace_s=0.2) as child:
        assert child._guard.stdout.readline() == b"ready\n"
        began = time.monotonic()
        assert child.stop() == 128 + signal.SIGKILL
        assert time.monotonic() - began < DEADLINE_S / 2
    child._guard.stdout.close()


def test_ctrl_c_reaches_neither_guard_nor_child():
    with guard.spawn(["sleep", "100"]) as child:
        os.kill(child._guard.pid, signal.SIGINT)
        assert os.getsid(child.pid) not in {os.getsid(0), os.getsid(child._guard.pid)}
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel ends a child with its parent")
def test_the_child_ends_when_its_guard_is_killed():
    with guard.spawn(["sleep", "100"]) as child:
        child._guard.kill()
        assert_gone(child.pid)


@pytest.mark.parametrize("forked_copy", [False, True], ids=["alone", "with a forked copy that holds the pipe"])
def test_the_child_ends_when_the_parent_is_killed(forked_copy):
    fork = "\nif os.fork() == 0: os.close(1); time.sleep(4); os._exit(0)" if forked_copy else ""
    script = (
        "import os, signal, sys, time; from harness import guard\n"
        f"child = guard.spawn(['sleep', '100']){fork}\nprint(child.pid, flush=True)\ntime.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert_gone(pid)


def test_a_program_that_is_not_there_is_an_error():
    with pytest.raises(OSError, match="no-such-program cannot be started: No such file or directory"):
        guard.spawn(["no-such-program"])
