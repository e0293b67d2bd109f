"""The offsets that Spark goes on from, in the form in which Spark 4.3 writes them."""

import json
from pathlib import Path

import pytest

from impls.spark.source import InputLog, read_partitions, read_until
from impls.spark.topics import Reading, Topics

HEAD = '\0v1\n{"batchWatermarkMs":0,"conf":{}}\n'


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def spark(folder: Path, last: int, *, committed: bool = True) -> Path:
    """A checkpoint of a query whose batches `0..last` have begun; all but perhaps the last one have been committed."""
    write(folder / "sources/0/0", '\0v1\n{"in":{"0":0,"1":5}}')
    for batch in range(last + 1):
        write(folder / f"offsets/{batch}", HEAD + json.dumps({"in": {"0": 10 * batch, "1": 20}}))
        if batch < last or committed:
            write(folder / f"commits/{batch}", 'v2\n{"nextBatchWatermarkMs":0}')
    return folder


ONE = Topics((Reading(("in",)),)).numbered()


def forward(folder: Path, needed: dict[int, int], topics: Topics = ONE) -> None:
    InputLog(str(folder), topics).keep(needed)
    InputLog(str(folder), topics).put_forward()


def test_the_end_of_the_last_committed_batch_is_put_forward_where_less_is_needed(tmp_path):
    before = spark(tmp_path, 11)
    old = (before / "offsets/10").read_text()
    forward(before, {0: 150, 1: 7})
    text = (before / "offsets/11").read_text()
    assert text.startswith(HEAD)
    assert json.loads(text.removeprefix(HEAD)) == {"in": {"0": 150, "1": 20}}
    assert (before / "offsets/10").read_text() == old


def test_a_batch_that_is_noted_and_not_committed_comes_again_from_its_begin(tmp_path):
    forward(spark(tmp_path, 3, committed=False), {0: 25})
    assert json.loads((tmp_path / "offsets/2").read_text().removeprefix(HEAD)) == {"in": {"0": 25, "1": 20}}


def test_in_the_first_batch_it_is_what_the_source_has_noted(tmp_path):
    spark(tmp_path, -1)
    forward(tmp_path, {0: 3, 1: 6})
    assert (tmp_path / "sources/0/0").read_text() == '\0v1\n{"in":{"0":3,"1":6}}'


def test_a_sum_that_no_longer_fits_goes(tmp_path):
    write(spark(tmp_path, 0) / "offsets/.0.crc", "sum")
    forward(tmp_path, {0: 1})
    assert not (tmp_path / "offsets/.0.crc").exists()


@pytest.mark.parametrize(
    "offsets", ['{"one":{"0":1},"two":7}', "{}", '{"in":{"0":-2}}', '{"in":{"0":"1"}}', "7", "", '{"in":7}']
)
def test_other_offsets_stay_as_they_are(tmp_path, offsets):
    write(spark(tmp_path, 0) / "offsets/0", HEAD + offsets)
    forward(tmp_path, {0: 100})
    assert (tmp_path / "offsets/0").read_text() == HEAD + offsets


@pytest.mark.parametrize("torn", ["", '{"0": 1', "[]", '{"0": "x"}'])
def test_a_note_that_is_torn_or_missing_changes_nothing(tmp_path, torn):
    spark(tmp_path, 0)
    old = (tmp_path / "offsets/0").read_text()
    InputLog(str(tmp_path), ONE).put_forward()
    write(tmp_path / "needed-offsets.json", torn)
    InputLog(str(tmp_path), ONE).put_forward()
    assert (tmp_path / "offsets/0").read_text() == old


def test_before_spark_has_written_anything_nothing_is_done(tmp_path):
    InputLog(str(tmp_path / "none"), ONE).put_forward()
    InputLog(str(tmp_path), ONE).keep({})
    assert not list(tmp_path.iterdir())


def input_partition(number: int, partition: int) -> int:
    return number << 20 | partition


def test_each_topic_of_each_source_goes_to_its_own_offset(tmp_path):
    topics = Topics((Reading(("a", "b")), Reading(("c",), 1))).numbered()
    lines = ['{"a":{"0":1000},"b":{"0":20,"1":7}}', '{"c":{"0":3}}']
    write(spark(tmp_path, 0) / "offsets/0", HEAD + "\n".join(lines))
    forward(tmp_path, {input_partition(0, 0): 1500, input_partition(1, 1): 8, input_partition(2, 0): 4}, topics)
    found = (tmp_path / "offsets/0").read_text().removeprefix(HEAD).split("\n")
    assert [json.loads(line) for line in found] == [{"a": {"0": 1500}, "b": {"0": 20, "1": 8}}, {"c": {"0": 4}}]


def test_a_topic_that_two_sources_read_goes_as_far_as_the_slower_one(tmp_path):
    topics = Topics((Reading(("in",)), Reading(("in",), 1))).numbered()
    write(spark(tmp_path, 0) / "offsets/0", HEAD + '{"in":{"0":10,"1":10}}\n{"in":{"0":10,"1":10}}')
    forward(
        tmp_path, {0: 30, 1: 40, input_partition(1, 0): 20}, topics
    )  # its second reader has not said of partition 1
    found = (tmp_path / "offsets/0").read_text().removeprefix(HEAD).split("\n")
    assert [json.loads(line) for line in found] == [{"in": {"0": 20, "1": 10}}] * 2


def test_input_partitions_that_are_the_users_own_numbers_put_nothing_forward(tmp_path):
    forward(spark(tmp_path, 0), {0: 100, 1: 100}, Topics())
    assert json.loads((tmp_path / "offsets/0").read_text().removeprefix(HEAD)) == {"in": {"0": 0, "1": 20}}


@pytest.mark.parametrize("committed", [True, False])
def test_a_topic_that_was_made_anew_is_read_from_its_first_record_also_by_a_batch_that_comes_again(tmp_path, committed):
    topics = Topics((Reading(("in", "more")),)).numbered()
    folder = spark(tmp_path, 3, committed=committed)
    for batch in range(4):
        ends = {"in": {"0": 10 * batch, "1": 20}, "more": {"0": batch}}
        write(folder / f"offsets/{batch}", HEAD + json.dumps(ends))
    InputLog(str(folder), topics).begin_anew({"in"})
    found = [json.loads((folder / f"offsets/{n}").read_text().removeprefix(HEAD)) for n in range(4)]
    first = 3 if committed else 2
    assert [ends["in"]["0"] for ends in found] == [10 * n if n < first else 0 for n in range(4)]
    assert [ends["more"]["0"] for ends in found] == [0, 1, 2, 3]


def read(folder: Path, since: dict[int, int] | None = None) -> dict[tuple[str, int], int]:
    return read_until(str(folder), ONE, real_time=True)(0, since)


def test_a_driver_that_begins_keeps_what_was_noted_of_partitions_without_new_records(tmp_path):
    spark(tmp_path, -1)
    InputLog(str(tmp_path), ONE).keep({0: 100, 1: 100})
    log = InputLog(str(tmp_path), ONE)
    log.keep({})
    log.keep({0: 105})
    assert read_partitions(tmp_path) == {0, 1}
    assert read(tmp_path) == {("in", 0): 105, ("in", 1): 100}


def test_what_was_noted_of_a_topic_that_was_made_anew_goes(tmp_path):
    spark(tmp_path, -1)
    InputLog(str(tmp_path), ONE).keep({0: 100, 1: 100})
    anew = Topics(ONE.readings, dict.fromkeys(ONE.numbers, 7), former=(0,))
    InputLog(str(tmp_path), anew).keep({7 << 20: 3})
    assert read_partitions(tmp_path) == {7 << 20}


def test_a_batch_that_is_committed_was_read_whole_whatever_its_last_epoch_has_noted(tmp_path):
    spark(tmp_path, 10)  # of which partition 1 has no note
    InputLog(str(tmp_path), ONE).keep({0: 97})
    assert read(tmp_path) == {("in", 0): 100, ("in", 1): 20}
    assert read(tmp_path, {0: 130}) == {("in", 0): 130, ("in", 1): 20}
    write(tmp_path / "offsets/11", HEAD + json.dumps({"in": {"0": 900, "1": 900}}))
    assert read(tmp_path) == {("in", 0): 100, ("in", 1): 20}, "a batch that is noted may come again"
