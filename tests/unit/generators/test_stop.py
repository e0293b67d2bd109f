"""The event that a signal sets."""

import subprocess
import sys
import threading

from generators.stdin import Stop

_INTERRUPTED = """
import signal, sys
from generators.stdin import Stop

def reaches(line):
    stop, passed = Stop(), 0

    def trace(frame, event, _):
        nonlocal passed
        if event == "line":
            passed += 1
            if passed == line:
                signal.raise_signal(signal.SIGUSR1)
        return trace

    signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    sys.settrace(trace)
    stop.wait(0.01)
    sys.settrace(None)
    assert stop.is_set() == (passed >= line)
    return stop.is_set()

line = 1
while reaches(line):
    line += 1
assert line > 1
"""


def test_a_signal_at_any_line_of_a_wait_sets_it():
    """With `threading.Event` the process hangs."""
    assert subprocess.run([sys.executable, "-c", _INTERRUPTED], timeout=60, check=False).returncode == 0


def test_all_who_wait_are_woken_and_who_comes_later_does_not_wait():
    stop, ended = Stop(), list[bool]()
    threads = [threading.Thread(target=lambda: ended.append(stop.wait(30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not stop.is_set()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert ended == [True] * 3
    assert stop.wait(30)


def test_a_wait_ends_with_its_time():
    assert not Stop().wait(0.01)
