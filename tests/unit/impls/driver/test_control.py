"""The control channel, the checkpoint folder's lock and its identity."""

import sys
import threading
from subprocess import PIPE, Popen

import pytest

from impls.driver.checkpoint import Checkpoint
from impls.driver.control import ControlServer, Lent, ask, lent_if_running
from impls.errors import StateError, UsageError


def test_a_request_is_answered_and_a_refusal_travels_back(tmp_path):
    def handle(request):
        if request["do"] == "rescale":
            raise UsageError("3 bins are too few for 4 workers.")
        return {"echo": request["do"]}

    own = tmp_path / "rescale"
    own.mkdir()
    server = ControlServer(own, handle)
    try:
        assert ask(tmp_path, {"do": "status"}) == {"echo": "status"}
        with pytest.raises(UsageError, match="3 bins are too few"):
            ask(tmp_path, {"do": "rescale"})
        with pytest.raises(UsageError, match="not understood"):
            ask(tmp_path, {"no": "verb"})
        with pytest.raises(TypeError, match="not JSON serializable"):  # and not that no query answers
            ask(tmp_path, {"do": "status", "of": object()})
    finally:
        server.close()
    with pytest.raises(UsageError, match="No running query"):
        ask(tmp_path, {"do": "status"})


@pytest.mark.parametrize(("error", "sentence"), [
    (OverflowError("int too large"), "The request is not understood: OverflowError: int too large."),
    (ModuleNotFoundError("No module named 'rules'"), "not understood: ModuleNotFoundError: No module named 'rules'."),
    (StateError("The disk is full."), "The request was not carried out: The disk is full."),
])  # fmt: skip
def test_whatever_a_request_fails_with_is_its_answer(tmp_path, error, sentence):
    def handle(_request):
        raise error

    own = tmp_path / "rescale"
    own.mkdir()
    server = ControlServer(own, handle)
    try:
        with pytest.raises(UsageError, match=sentence):
            ask(tmp_path, {"do": "rebalance"})
    finally:
        server.close()


@pytest.mark.parametrize("ends", ["the block", "the process", "the server"])
def test_what_is_lent_is_taken_back_whoever_ends(tmp_path, ends):
    own, back = tmp_path / "rescale", threading.Event()
    own.mkdir()
    server = ControlServer(own, lambda _: Lent({"epoch": 7}, back.set))
    try:
        if ends == "the process":
            code = "import sys; from impls.driver.control import *; one = lent_if_running(sys.argv[1], {'do': 'cut'})\n"
            code += "print(one.__enter__(), flush=True); input()"
            command, pipes = [sys.executable, "-c", code, str(tmp_path)], {"stdin": PIPE, "stdout": PIPE, "text": True}
            with Popen(command, **pipes) as other:
                assert other.stdout.readline() == "{'epoch': 7}\n"
                assert not back.is_set()
                other.kill()
        else:
            with lent_if_running(tmp_path, {"do": "cut"}) as answer:
                assert answer == {"epoch": 7}
                assert not back.is_set()
                if ends == "the server":
                    server.close()
                    assert back.is_set()
        assert back.wait(30), "nobody has it any more"
    finally:
        server.close()


def test_a_checkpoint_has_one_driver_at_a_time_and_counts_generations(tmp_path):
    first = Checkpoint(tmp_path, {"bins": 16})
    with pytest.raises(UsageError, match="in use by another driver"):
        Checkpoint(tmp_path, {"bins": 16})
    first.close()
    second = Checkpoint(tmp_path, {"bins": 16})
    second.close()
    assert (first.generation, second.generation) == (1, 2)
    assert first.query == second.query


def test_other_settings_are_refused(tmp_path):
    Checkpoint(tmp_path, {"bins": 16}).close()
    with pytest.raises(UsageError, match="bins=16, not 32"):
        Checkpoint(tmp_path, {"bins": 32})


@pytest.mark.parametrize("text", ["{", '{"format": 1}', "[]"])
def test_a_corrupt_checkpoint_is_refused_and_its_lock_freed(tmp_path, text):
    Checkpoint(tmp_path, {}).close()
    (tmp_path / "rescale" / "query.json").write_text(text)
    for _ in range(2):
        with pytest.raises(UsageError, match="corrupt"):
            Checkpoint(tmp_path, {})


def test_another_format_is_refused(tmp_path):
    Checkpoint(tmp_path, {}).close()
    (tmp_path / "rescale" / "query.json").write_text('{"format": 9, "query": "q", "settings": {}}')
    with pytest.raises(UsageError, match="format 9"):
        Checkpoint(tmp_path, {})
