"""Where an epoch and an epoch begin, from the files that Spark and the runner write."""

import json

import pytest

from impls.spark.source import InputLog, epoch_begin, real_time_begin
from impls.spark.topics import Reading, Topics


def note(location, epoch, *sources):
    (location / "offsets").mkdir(exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(source) if source is not None else "-" for source in sources)]
    (location / "offsets" / str(epoch)).write_text("\n".join(lines))


def test_an_epoch_begins_where_the_one_before_ended(tmp_path):
    note(tmp_path, 6, {"in": {"0": 10, "1": 12}}, 17)
    note(tmp_path, 7, {"in": {"0": 20, "1": 22}}, 18)
    assert epoch_begin(tmp_path, 7) == {"in": {0: 10, 1: 12}}
    assert epoch_begin(tmp_path, 8) == {"in": {0: 20, 1: 22}}
    assert epoch_begin(tmp_path, 9) is None


@pytest.mark.parametrize(
    ("sources", "begin"),
    [
        (({"a": {"0": 1}, "b": {"0": 2}}, 5), {"a": {0: 1}, "b": {0: 2}}),
        (({"a": {"0": 1, "1": 9}}, {"a": {"0": 4, "1": 3}}), {"a": {0: 1, 1: 3}}),
        (({"logOffset": 3}, 5), {}),
        ((None, 5), {}),
    ],
)
def test_topics_of_all_sources_count_and_other_sources_have_none(tmp_path, sources, begin):
    note(tmp_path, 0, *sources)
    assert epoch_begin(tmp_path, 1) == begin


def test_an_epoch_is_not_before_what_the_runner_has_noted(tmp_path):
    topics = Topics((Reading(("in",)), Reading(None, 1))).numbered()
    other = topics.input_partitions("other", 0)[0]
    assert real_time_begin(tmp_path, topics) is None
    InputLog(str(tmp_path), topics).keep({0: 5, 1: 7, other: 9})
    assert real_time_begin(tmp_path, topics) is None
    for source, offsets in enumerate([{"in": {"0": 0, "1": 0}}, {"other": {"0": 0, "1": 0}}]):
        (tmp_path / "sources" / str(source)).mkdir(parents=True)
        (tmp_path / "sources" / str(source) / "0").write_bytes(b"\x00v1\n" + json.dumps(offsets).encode())
    assert real_time_begin(tmp_path, Topics()) == {}
    only = Topics((Reading(("in",)),)).numbered()
    assert real_time_begin(tmp_path, only) == {"in": {0: 5, 1: 7}}
    assert real_time_begin(tmp_path, Topics((Reading(None),))) is None
