"""How far a source was read, from the files of Spark's checkpoint."""

import json

from impls.spark.source import InputLog, read_until
from impls.spark.topics import Reading, Topics

ONE = Topics((Reading(("in",)),)).numbered()


def test_an_epoch_has_read_to_where_the_offset_log_says(tmp_path):
    (tmp_path / "offsets").mkdir()
    kafka, other = '{"in":{"0":12,"1":34}}', '{"more":{"0":5}}'
    (tmp_path / "offsets" / "7").write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{"a":"1"}}}}\n{kafka}\n99\n-\n{other}')
    read = read_until(str(tmp_path), ONE, real_time=False)
    assert read(7) == {("in", 0): 12, ("in", 1): 34, ("more", 0): 5}
    assert read(8) == {}


def test_a_topic_that_is_read_twice_counts_as_far_as_both_have_read(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"in":{"0":12}}\n{"in":{"0":10}}')
    assert read_until(str(tmp_path), ONE, real_time=False)(0) == {("in", 0): 10}


NAMED, PATTERN = Reading(("in",), 0), Reading(None, 1)
BOTH = Topics((NAMED, PATTERN)).numbered()


def sources(folder, *lines):
    """What Spark's sources have noted at the query's beginning."""
    for number, line in enumerate(lines):
        (folder / "sources" / str(number)).mkdir(parents=True)
        (folder / "sources" / str(number) / "0").write_text(f"v1\n{line}")


def needs(folder, *places):
    """Notes (topic, source, partition, offset) as needed again."""
    parts = {BOTH.input_partitions(topic, part, [BOTH.readings[at]])[0]: offset for topic, at, part, offset in places}
    (folder / "needed-offsets.json").write_text(json.dumps(parts))


def test_a_topic_of_one_source_does_not_wait_for_a_pattern_that_does_not_match_it(tmp_path):
    sources(tmp_path, '{"in":{"0":0}}', '{"more":{"0":0}}')
    needs(tmp_path, ("in", 0, 0, 7), ("more", 1, 0, 3))
    assert read_until(str(tmp_path), BOTH, real_time=True)(1) == {("in", 0): 7, ("more", 0): 3}
    InputLog(str(tmp_path), BOTH).put_forward()
    found = [(tmp_path / "sources" / at / "0").read_text() for at in "01"]
    assert found == ['v1\n{"in":{"0":7}}', 'v1\n{"more":{"0":3}}']


def test_a_topic_of_two_sources_is_as_far_as_the_slower_one_and_unknown_where_one_is(tmp_path):
    sources(tmp_path, '{"in":{"0":0,"1":0}}', '{"in":{"0":0,"1":0}}')
    needs(tmp_path, ("in", 0, 0, 7), ("in", 1, 0, 3), ("in", 0, 1, 5))
    assert read_until(str(tmp_path), BOTH, real_time=True)(1) == {("in", 0): 3}
    InputLog(str(tmp_path), BOTH).put_forward()
    found = [(tmp_path / "sources" / at / "0").read_text() for at in "01"]
    assert found == ['v1\n{"in":{"0":7,"1":5}}', 'v1\n{"in":{"0":3,"1":0}}']


def test_what_one_of_sparks_sources_reads_for_two_of_the_plan_goes_by_both(tmp_path):
    sources(tmp_path, '{"in":{"0":0,"1":0}}')
    needs(tmp_path, ("in", 0, 0, 7), ("in", 1, 0, 3), ("in", 0, 1, 5))
    InputLog(str(tmp_path), BOTH).put_forward()
    assert (tmp_path / "sources" / "0" / "0").read_text() == 'v1\n{"in":{"0":3,"1":0}}'


def test_an_epoch_has_read_to_what_is_needed_again(tmp_path):
    read = read_until(str(tmp_path), ONE, real_time=True)
    assert read(3) == {}
    (tmp_path / "needed-offsets.json").write_text('{"0":12,"1":34}')
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('v1\n{"in":{"0":0,"1":0}}')
    assert read(3) == {("in", 0): 12, ("in", 1): 34}
    assert read(3, {0: 15, 1: 20}) == {("in", 0): 15, ("in", 1): 34}, "workers have applied more since"
