"""A child process notices what comes on its standard input, and its end."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import threading
from generators.stdin import watch_stdin
over = threading.Event()
watch_stdin(over.set, on_words=lambda said: print(said.decode().strip(), flush=True))
print("over" if over.wait(30) else "waiting", flush=True)
"""


@pytest.fixture
def child():
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_words_are_told_and_then_the_end(child):
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "go\n"
    assert child.poll() is None
    child.stdin.close()
    assert child.stdout.readline() == "over\n"
    assert child.wait(30) == 0
