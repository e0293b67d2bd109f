"""The control channel, the checkpoint folder's lock and its identity."""

import pytest

from impls.driver.checkpoint import Checkpoint
from impls.driver.control import ControlServer, ask
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
