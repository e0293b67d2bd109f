"""A start that is refused leaves no checkpoint behind where there was none, and any other as it was."""

import pytest

from impls.driver.checkpoint import Checkpoint
from impls.driver.refusal import undone_when_refused
from impls.errors import StateError, UsageError


def refused(folder, error=UsageError, before=lambda _: None, **settings):
    def start():
        with undone_when_refused(Checkpoint(folder, settings)) as opened:
            before(opened)
            raise error("no")

    with pytest.raises(error):
        start()


def test_a_first_start_is_undone_so_that_the_next_one_may_have_other_settings(tmp_path):
    refused(tmp_path / "new", bins=16)
    assert not (tmp_path / "new").exists()
    Checkpoint(tmp_path / "new", {"bins": 32}).close()


def test_what_somebody_else_has_put_there_stays(tmp_path):
    (tmp_path / "own" / "rescale" / "code").mkdir(parents=True)
    (tmp_path / "own" / "rescale" / "code" / "1").write_text("offered")
    refused(tmp_path / "own", bins=16)
    assert [path.name for path in (tmp_path / "own").rglob("*") if path.is_file()] == ["1"]


def test_a_checkpoint_that_was_there_stays(tmp_path):
    Checkpoint(tmp_path, {"bins": 16}).close()
    refused(tmp_path, bins=16)
    with pytest.raises(UsageError, match="bins=16"):
        Checkpoint(tmp_path, {"bins": 32})


def test_behind_a_plan_or_another_error_nothing_is_deleted(tmp_path):
    refused(tmp_path / "planned", before=lambda opened: opened.plans.append({"epoch": 0}), bins=16)
    refused(tmp_path / "failed", StateError, bins=16)
    for name in ("planned", "failed"):
        with pytest.raises(UsageError, match="bins=16"):
            Checkpoint(tmp_path / name, {"bins": 32})
