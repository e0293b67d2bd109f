"""What earlier releases have left on disk is continued and read; what a later one leaves is refused in a sentence."""

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
def test_a_checkpoint_of_a_release_is_continued(release, name, spark, kafka, topic_factory, tmp_path, results_of):
    from harness.lab.topics import create_topics

    topic, sink = released.input_of(release, name), topic_factory(4)
    create_topics(kafka, {topic: released.PARTITIONS})
    released.send(kafka, topic, range(3))  # what the release has read is there at the same offsets
    shutil.copytree(released.RELEASES / release / name, tmp_path / "checkpoint")
    with released.query(spark, kafka, name, topic, sink, tmp_path) as query:
        assert query.status()["workers"] == 3, "its command holds"
        released.send(kafka, topic, range(3, 5))
        query.rescale(workers=2)
        counts, results = {}, []
        while counts != {f"u{user}": 5 for user in range(released.USERS)}:  # three of each were counted by the release
            results = results_of(sink).wait_for(len(results) + 1, f"the count 5 of every user, after {counts}")
            counts = {row["user"]: row["count"] for row in map(json.loads, results) if row["user"] != "last"}
        assert query.await_migration(60)


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
