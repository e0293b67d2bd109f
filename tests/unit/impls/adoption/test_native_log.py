"""What is read of a native query's logs, and which of them are refused."""

import pytest
from native import native_log

from impls.adoption.native import check_ranges, read_log
from impls.adoption.reading import AGGREGATION, TRANSFORM_WITH_STATE, StateOperator, the_operator
from impls.durability.files import Files
from impls.errors import UsageError


def read(folder):
    return read_log(Files(str(folder)))


def test_the_last_committed_batch_is_taken_and_the_one_planned_behind_it_counted(tmp_path):
    log = read(native_log(tmp_path, 11, 12))
    assert (log.batch, log.planned, log.offsets, log.watermark_ms) == (11, 1, {"in": {0: 10, 1: 20}}, 4000)
    assert log.sources == log.before == (b'{"in":{"0":10,"1":20}}',)
    assert log.aggregation_format == "2"


def test_a_topic_that_is_read_twice_is_as_far_as_the_slower_reader(tmp_path):
    log = read(native_log(tmp_path, 0, sources=('{"in":{"0":10}}', '{"in":{"0":7,"1":3}}')))
    assert log.offsets == {"in": {0: 7, 1: 3}}
    assert log.before is None


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"committed": -1, "planned": 0}, "has committed no batch"),
        ({"committed": 2, "sources": ("5",)}, "is not Kafka"),
        ({"committed": 2, "sources": ('{"logOffset":3}',)}, "is not Kafka"),
        ({"committed": 2, "sources": ('{"in":{"0":10}}', "-")}, "Source 1 .* has had no data"),
        ({"committed": 2, "sources": ()}, "has no source"),
        ({"committed": 2, "version": "v2"}, "offset log .* has format v2"),
    ],
)
def test_logs_that_cannot_be_gone_on_from_are_refused(tmp_path, how, why):
    native_log(tmp_path, **how)
    with pytest.raises(UsageError, match=why):
        read(tmp_path)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is no checkpoint"):
        read(tmp_path / "nothing")


@pytest.mark.parametrize(("name", "text", "why"), [
    ("offsets/3", None, "offsets/3 is missing"), ("offsets/3", "v1\n{torn", "offsets/3 is damaged"),
    ("commits/3", "v1\n{torn", "commits/3 is damaged"),
])  # fmt: skip
def test_a_damaged_log_is_refused_by_the_files_name(tmp_path, name, text, why):
    path = native_log(tmp_path, 3) / name
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(UsageError, match=why):
        read(tmp_path)


def operator(kind, number=0):
    return StateOperator(kind, number, 4, {})


def test_the_two_kinds_of_state_are_told_apart():
    assert the_operator([operator("stateStoreSave")], "x").kind == AGGREGATION
    for name in ("transformWithStateExec", "transformWithStateInPySparkExec", "transformWithStateInPandasExec"):
        assert the_operator([operator(name)], "x").kind == TRANSFORM_WITH_STATE


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], "stateless, or was last run by a Spark before 4.0"),
        ([operator("stateStoreSave"), operator("dedupe", 1)], "2 stateful operators"),
        ([operator("symmetricHashJoin")] * 4, "a join of two streams"),
        ([operator("dedupe")], "dropDuplicates"),
        ([operator("flatMapGroupsWithState")], "mapGroupsWithState"),
        ([operator("applyInPandasWithState")], "applyInPandasWithState"),
        ([operator("sessionWindowStateStoreSaveExec")], "session windows"),
        ([operator("somethingNew")], "not known here: somethingNew"),
    ],
)
def test_other_state_is_refused_by_its_name(found, why):
    with pytest.raises(UsageError, match=why):
        the_operator(found, "x")


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ({}, "has been deleted or renamed"),
        ({"in": {0: (0, 10)}}, "partition 1 .* is not there"),
        ({"in": {0: (0, 9), 1: (0, 20)}}, "ends at 9: the topic was made anew"),
        ({"in": {0: (0, 10), 1: (21, 30)}}, "has deleted what is before 21"),
    ],
)
def test_a_topic_without_the_records_to_come_is_refused(ranges, why):
    with pytest.raises(UsageError, match=why):
        check_ranges({"in": {0: 10, 1: 20}}, ranges)


def test_a_topic_with_the_records_to_come_is_not():
    check_ranges({"in": {0: 10, 1: 20}}, {"in": {0: (10, 10), 1: (0, 99), 2: (0, 1)}})
