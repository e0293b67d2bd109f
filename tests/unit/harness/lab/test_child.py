"""A program in a process of its own: it begins at a word, ends with whoever started it, and says why it failed."""

import os
import signal
import textwrap

import pytest

from harness.files import ROOT
from harness.lab.child import Child, ProcessEnd

PROGRAM = """
import os, sys, time
from generators.spec import GeneratorError
from harness.lab.child import Cancelled, program
from impls.errors import InvalidPlanError, StateError, UsageError

def work(folder, parent):
    print("a library's own words")
    parent.tell({"at": folder.name})
    parent.go.wait(60)
    what = (folder / "what").read_text()
    if what == "wait":
        parent.gone.wait(60)
        raise Cancelled
    if what:
        exec(what)

sys.exit(program(work, patient=(sys.argv[2:] != ["at once"])))
"""


@pytest.fixture
def child(tmp_path):
    """Starts a program whose work is what a text says."""
    (tmp_path / "told.py").write_text(PROGRAM)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])

    def start(what, *arguments, **how):
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / "what").write_text(textwrap.dedent(what))
        return Child("told", folder, *arguments, env={"PYTHONPATH": path}, **how)

    return start


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("", ProcessEnd(0)),
        ("raise UsageError('No such thing.')", ProcessEnd(2, "No such thing.")),
        ("raise GeneratorError('No such rate.')", ProcessEnd(2, "No such rate.")),
        ("raise StateError('It has ended.')", ProcessEnd(1, "It has ended.")),
        ("raise InvalidPlanError('Bin 3 is nowhere.')", ProcessEnd(1, "Bin 3 is nowhere.")),
        ("raise KeyError('a')", ProcessEnd(3, None, "KeyError: 'a'")),
        ("raise RuntimeError('It was:\\n: that\\n: far')", ProcessEnd(3, None, "RuntimeError: It was: that")),
        ("raise OSError", ProcessEnd(3, None, "OSError")),
        ("raise Cancelled", ProcessEnd(130)),
        ("os.kill(os.getpid(), 9)", ProcessEnd(-9)),
    ],
)
@pytest.mark.parametrize("said", ["", "said.jsonl"])
def test_a_program_begins_at_the_word_and_its_end_says_why(child, what, end, said):
    with child(what, said=said) as process:
        if not said:
            assert next(process.lines()) == {"at": "folder"}
        assert process.ended() is None
        process.go()
        if not said:
            list(process.lines())
        assert process.wait() == end
        assert process.ended() == end
    assert ("Traceback" in (process.folder / "run.log").read_text()) == (end.code == 3)


@pytest.mark.parametrize("arguments", [[], ["at once"]])
def test_a_program_ends_when_nobody_holds_its_input(child, arguments):
    with child("wait", *arguments) as process:
        assert next(process.lines()) == {"at": "folder"}
        if not arguments:
            process.go()
    assert process.ended() == ProcessEnd(130)


def test_a_program_that_a_signal_asks_to_end_cleans_up(child):
    with child("wait") as process:
        next(process.lines())
        process.go()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == ProcessEnd(130)


def test_a_program_that_takes_too_long_is_killed(child):
    with child("wait") as process:
        next(process.lines())
        assert process.wait(0.01) == ProcessEnd(-9, late=True)


def test_a_signal_ends_a_program_that_does_not_look(child):
    with child("wait", "at once") as process:
        next(process.lines())
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == ProcessEnd(-signal.SIGTERM)


def test_what_a_parent_that_is_gone_is_told_is_no_failure(child):
    with child("parent.gone.wait(60)\nparent.tell({'far': 1})") as process:
        next(process.lines())
        process.go()
    assert process.ended() == ProcessEnd(0)


def test_one_that_has_died_is_told_to_go_without_a_failure(child):
    with child("wait") as process:
        process.kill()
        process.wait()
        process.go()
        assert [line for line in process.lines() if "error" in line] == []


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (ProcessEnd(1, "It has ended."), "It has ended."),
        (ProcessEnd(3, None, "KeyError: 1"), "KeyError: 1"),
        (ProcessEnd(-9), "The process was killed by SIGKILL."),
        (ProcessEnd(-70), "The process was killed by signal 70."),
        (ProcessEnd(-9, late=True), "The process did not end in time, and was killed."),
        (ProcessEnd(5), "The process ended with exit code 5."),
    ],
)
def test_an_end_in_a_sentence(end, sentence):
    assert str(end) == sentence
