"""How far a source was read, from the files of Spark's checkpoint."""

from impls.spark.source import read_until
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


def test_a_tick_has_read_to_what_is_needed_again(tmp_path):
    read = read_until(str(tmp_path), ONE, real_time=True)
    assert read(3) == {}
    (tmp_path / "needed-offsets.json").write_text('{"0":12,"1":34}')
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('v1\n{"in":{"0":0,"1":0}}')
    assert read(3) == {("in", 0): 12, ("in", 1): 34}
