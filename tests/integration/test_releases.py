"""What earlier releases have left on disk is read, or refused in a sentence; so is what a later one leaves."""

import json
import shutil

import pytest
import released

from impls.errors import UsageError

pytestmark = pytest.mark.spark
RELEASES = sorted(folder.name for folder in released.RELEASES.iterdir() if folder.is_dir())


def test_there_are_releases():
    assert "0.1.0" in RELEASES


@pytest.mark.capability("0.1.0-totals")
@pytest.mark.parametrize("name", released.OPERATORS)
@pytest.mark.parametrize("release", RELEASES)
def test_a_checkpoint_of_a_release_of_an_earlier_format_is_refused_and_left(
    release, name, spark, kafka, topic_factory, tmp_path
):
    shutil.copytree(released.RELEASES / release / name, tmp_path / "checkpoint")
    before = {
        path: path.read_bytes()
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file() and path.name != "lock"
    }
    with pytest.raises(UsageError, match=f"finish the query with rescale-bench {release}, or start it with a new"):
        released.query(spark, kafka, name, topic_factory(4), topic_factory(4), tmp_path)
    assert all(path.read_bytes() == raw for path, raw in before.items())


@pytest.mark.parametrize("release", RELEASES)
def test_a_checkpoint_of_a_later_format_is_refused(release, spark, kafka, topic_factory, tmp_path):
    shutil.copytree(released.RELEASES / release / "totals", tmp_path / "checkpoint")
    identity = tmp_path / "checkpoint" / "rescale" / "query.json"
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "format": 99}))
    topic = topic_factory(4)
    with pytest.raises(UsageError, match=r"^The checkpoint \S+ has format 99; this version reads \d\.$"):
        released.query(spark, kafka, "totals", topic, topic, tmp_path)


@pytest.mark.capability
@pytest.mark.parametrize("release", RELEASES)
def test_a_result_of_a_release_is_read_drawn_and_compared(release, tmp_path, capsys):
    from harness.report.across import compare
    from harness.report.report import redraw
    from harness.results.summary import validate

    place = tmp_path / release
    shutil.copytree(released.RELEASES / release / "result", place)
    assert [run["verdict"] for run in validate(place)["runs"]] == ["valid"]
    assert not redraw(str(place))
    assert (place / "report.html").stat().st_size > 10_000
    assert compare(str(place), str(tmp_path / "page.html")) == 0
    assert "megaphone-batched" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("release", RELEASES)
def test_a_result_of_a_later_schema_is_refused(release, tmp_path):
    from harness.results.summary import validate

    result = json.loads((released.RELEASES / release / "result" / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**result, "schema": 99}))
    with pytest.raises(UsageError, match=r"has schema version 99, and this program reads version \d+: use the version"):
        validate(tmp_path)
