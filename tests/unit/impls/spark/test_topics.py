"""Numbers of topics: equal partitions and offsets of two topics, or of a topic made anew, are never taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import UsageError
from impls.spark.topics import Reading, Topics, reading_of

listed = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True).map(tuple)
all_readings = st.lists(st.none() | listed, min_size=1, max_size=4).map(
    lambda topics: tuple(Reading(names, place, loses=True) for place, names in enumerate(topics))
)


def numbers_of(topics: Topics, names: str = "abcdxyz") -> list[int]:
    """The number of each topic in each source that may read it."""
    return [one for name in names for one in topics.input_partitions(name, 0)]


@given(all_readings)
def test_each_topic_of_each_source_has_a_number_of_its_own(readings):
    numbers = numbers_of(Topics(readings).numbered())
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) >= 0
    assert max(numbers) < 1 << 63


@given(all_readings, st.lists(st.dictionaries(st.sampled_from("abcdx"), st.integers(1, 3).map(str)), max_size=4))
def test_a_topic_that_was_made_anew_never_has_a_number_again(tmp_path_factory, readings, answers):
    folder, seen = tmp_path_factory.mktemp("own"), {}
    topics, ids = Topics.read(folder, readings), {}
    for answer in answers:
        topics, renewed = topics.update_ids(answer)
        assert renewed == sorted(name for name in answer if ids.get(name, answer[name]) != answer[name])
        ids |= answer
        topics.keep(folder)
        topics = Topics.read(folder, readings)
        for name in "abcdx":
            for place, number in enumerate(topics.input_partitions(name, 3)):
                life = sum(name in r for r in seen.get("renewed", []))
                before = seen.setdefault((name, place), {})
                if name in renewed:
                    assert number not in before
                before[number] = life
    numbers = numbers_of(topics)
    assert len(set(numbers)) == len(numbers)


def test_the_only_topic_of_a_query_has_its_own_partitions_as_numbers():
    only = Topics((Reading(("in",)),)).numbered()
    assert only.input_partitions("in", 3) == [3]
    assert only.sql(only.readings[0]) == "bigint(partition)"
    renewed, _ = Topics((Reading(("in",), loses=True),), {"in": 0}, {"in": "1"}).update_ids({"in": "2"})
    assert str(1 << 20) in renewed.sql(renewed.readings[0])


def test_numbers_stay_when_topics_are_added_and_named_in_another_order(tmp_path):
    first = Topics.read(tmp_path, [Reading(("b", "a"))])
    first.keep(tmp_path)
    again = Topics.read(tmp_path, [Reading(("a", "c", "b"))])
    assert [again.number(name) for name in "bac"] == [0, 1, 2]


def test_a_topic_made_anew_is_refused_unless_the_source_goes_on_without_what_is_gone():
    topics = Topics((Reading(("in",)),), ids={"in": "one"}).numbered()
    assert topics.update_ids({"in": "one"})[1] == []
    with pytest.raises(UsageError, match="The topic in was deleted and made anew"):
        topics.update_ids({"in": "two"})


def test_what_a_source_reads_follows_from_its_options():
    assert reading_of({"subscribe": "a, b"}, 1) == Reading(("a", "b"), 1)
    some = reading_of({"assign": '{"t": [0, 2]}', "failondataloss": "False"}, 0)
    assert some == Reading(("t",), 0, loses=True, assigned=2)
    assert reading_of({"assign": '{"t": 3}'}, 0) == Reading(("t",), 0), "Spark says what is wrong with it"
    assert reading_of({"subscribepattern": "a.*"}, 0) == Reading(None)
    broker = {"a": {0, 1, 2}, "b": {0}, "t": set(range(5))}
    assert [one.partitions(broker) for one in (Reading(("a", "b", "not there")), some, Reading(None))] == [4, 2, 0]


def test_a_damaged_file_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "topics.json").write_text('{"numbers": ')
    with pytest.raises(UsageError, match=r"topics\.json is damaged"):
        Topics.read(tmp_path, [])


def test_a_topic_that_a_pattern_has_found_keeps_its_number_when_it_is_named(tmp_path):
    found = Topics.read(tmp_path, [Reading(None)]).having_read(["in"], {"in": "one"})
    found.keep(tmp_path)
    named = Topics.read(tmp_path, [Reading(("in", "more"))])
    assert named.input_partitions("in", 2) == found.input_partitions("in", 2)
    assert named.number("more") == 0


def test_what_is_noted_of_topics_changes_with_each_start_that_changes_them(tmp_path):
    assert Topics.noted(tmp_path) == b""
    Topics.read(tmp_path, [Reading(("in",))]).keep(tmp_path)
    one = Topics.noted(tmp_path)
    Topics.read(tmp_path, [Reading(("in", "more"))]).keep(tmp_path)
    assert b"" != one != Topics.noted(tmp_path)
