"""Topics from start to start: each topic of each source has one number as long as it lives, and no other has it."""

import json
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import StateError, UsageError
from impls.spark.known import RunningTopics, topics_at_start
from impls.spark.source import InputLog
from impls.spark.topics import Reading, Topics

NAMES = "abcd"


class Broker:
    """Topics by name, of one partition; each that is made has an id of its own. `mute` lets it answer nothing."""

    def __init__(self, *topics: str):
        self._numbers, self.topics, self.mute, self.end, self.asked = count(), {}, False, 100, []
        self.hidden: set[str] = set()
        self.make(*topics)

    def make(self, *topics: str) -> None:
        self.topics |= {topic: f"id-{next(self._numbers)}" for topic in topics}

    def ids(self, topics) -> tuple[dict[str, str], set[str]]:
        self.asked.append(set(topics))
        if self.mute:
            return {}, set(topics)
        silent = self.hidden & set(topics)
        return {topic: self.topics[topic] for topic in topics if topic in self.topics.keys() - silent}, silent

    def partitions(self) -> dict[str, set[int]]:
        if self.mute:
            raise StateError("The broker does not name its topics: it is down.")
        return {topic: {0} for topic in self.topics}

    def ends(self, places) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.end)


class Checkpoint:
    """A query's checkpoint, in which runs leave what Spark and the runner of real-time mode leave."""

    def __init__(self, folder: Path, broker: Broker):
        self.own, self.location, self.broker = folder / "rescale", folder / "spark", broker
        for made in (self.own, self.location / "offsets"):
            made.mkdir(parents=True)
        self._batch = count()
        self.topics = Topics()

    def start(self, *readings: Reading) -> list[str]:
        self.topics, renewed = topics_at_start(self.own, self.location, readings, self.broker)
        self.topics.keep(self.own)
        return renewed

    def read(self, *, noted: bool = True, ended: bool = True) -> dict[tuple[int, str], int]:
        """Each source reads all topics that it can; returns the input partition by source and topic.

        Raises UsageError where a topic is another one than the query knows.

        A batch of real-time mode that has not ended has no offsets in Spark's log, only those behind the last epoch.
        """
        lines, numbers = [], {}
        for reading in self.topics.readings:
            topics = [topic for topic in sorted(self.broker.topics) if reading.may_read(topic)]
            for topic in topics:
                alone = Topics((reading,), self.topics.numbers)
                (numbers[reading.place, topic],) = alone.input_partitions(topic, 0)
            lines.append(json.dumps({topic: {"0": 50} for topic in topics}))
        if ended:
            (self.location / "offsets" / str(next(self._batch))).write_text("\n".join(["v1", "{}", *lines]))
        else:
            InputLog(str(self.location), self.topics).keep(dict.fromkeys(numbers.values(), 50))
        if noted:
            self.running().note()
        return numbers

    def running(self, *, every_s: float = 0.0, **more) -> RunningTopics:
        return RunningTopics(self.topics, self.own, self.location, self.broker, every_s=every_s, fsync=False, **more)


def pattern(place: int = 0, *, loses: bool = True) -> Reading:
    return Reading(None, place, loses)


def named(*topics: str, place: int = 0, loses: bool = True) -> Reading:
    return Reading(topics, place, loses)


some = st.sets(st.sampled_from(NAMES))
reads = st.none() | st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple)


@given(st.data(), st.integers(1, 3))
def test_an_input_partition_is_that_of_one_topic_in_one_source_in_all_starts(tmp_path_factory, data, sources):
    broker = Broker("a")
    query = Checkpoint(tmp_path_factory.mktemp("query"), broker)
    number_of, unsure = {}, set()
    for _ in range(data.draw(st.integers(1, 5))):
        for topic in data.draw(some) - unsure:
            broker.topics.pop(topic, None)
        broker.make(*data.draw(some) - unsure)  # a topic that is there is made anew
        query.start(*(Reading(data.draw(reads), place, loses=True) for place in range(sources)))
        first = set(broker.topics) - query.topics.ids.keys()
        late = data.draw(some)  # while the query runs, anew where it is there
        broker.make(*late)
        first |= late
        noted = data.draw(st.booleans()) or bool(late & query.topics.ids.keys())
        try:
            numbers = query.read(noted=noted, ended=data.draw(st.booleans()))
        except UsageError:
            assert late & query.topics.ids.keys()
            continue
        for (place, topic), number in numbers.items():
            assert number_of.setdefault((place, broker.topics[topic]), number) == number
        unsure = set() if noted else first
    assert len(set(number_of.values())) == len(number_of)


@pytest.mark.parametrize("ended", [True, False])
def test_a_topic_that_a_pattern_finds_while_the_query_runs_and_that_is_made_anew_is_another_one(tmp_path, ended):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    query.broker.make("b")
    before = query.read(ended=ended)
    query.broker.make("b")
    assert query.start(pattern()) == ["b"]
    after = query.read()
    assert after[0, "a"] == before[0, "a"]
    assert after[0, "b"] != before[0, "b"]


def test_a_topic_whose_id_nobody_has_noted_is_another_one_where_it_is_shorter_than_what_was_read(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    query.read(noted=False)
    assert query.start(pattern()) == []
    query.topics = Topics()
    query.broker.end = 49
    (query.own / "topics.json").write_text('{"numbers": {}, "ids": {}, "former": []}')
    with pytest.raises(UsageError, match="The topic a was deleted and made anew"):
        query.start(pattern(loses=False))
    assert query.start(pattern()) == ["a"]


def test_it_is_said_that_a_topic_may_be_another_one(tmp_path, caplog):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    assert not caplog.messages
    query.read(noted=False)
    query.start(pattern())
    assert caplog.messages == ["The id of topic a was not known yet: if it was made anew since, records are left out."]


def test_a_topic_that_no_source_reads_for_a_while_and_that_is_made_anew_meanwhile_is_another_one(tmp_path):
    query = Checkpoint(tmp_path, Broker("a", "b"))
    query.start(named("a"))
    before = query.read()
    query.broker.make("a")
    query.start(named("b", loses=False))
    query.read()
    query.start(named("a", "b"))
    assert query.read()[0, "a"] != before[0, "a"]


def test_a_source_keeps_its_number_when_another_one_reads_its_topic_too(tmp_path):
    query = Checkpoint(tmp_path, Broker("a", "b"))
    query.start(named("a"), named("b", place=1))
    before = query.read()
    query.start(named("a", "b"), named("b", place=1))
    after = query.read()
    assert after[1, "b"] == before[1, "b"]
    assert after[0, "b"] not in before.values()


@pytest.mark.parametrize(("fewer", "renewed"), [(True, ["a"]), (False, [])])
def test_a_topic_whose_id_nobody_has_noted_is_another_one_where_it_lacks_a_partition_that_was_read(
    tmp_path, fewer, renewed
):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    (query.location / "offsets" / "0").write_text('v1\n{}\n{"a": {"0": 50, "1": 0}}')
    query.broker.partitions = lambda: {"a": {0} if fewer else {0, 1}}
    assert query.start(pattern()) == renewed


def test_a_topic_that_is_not_there_and_whose_id_nobody_has_noted_may_come_again_as_it_was(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern(loses=False))
    before, there = query.read(noted=False), dict(query.broker.topics)
    query.broker.topics.clear()  # as a broker says that has just started
    assert query.start(pattern(loses=False)) == []
    query.broker.topics |= there
    assert query.read() == before


def test_a_topic_that_the_broker_says_nothing_of_may_be_the_one_that_was_read(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    before = query.read(noted=False)
    query.broker.mute = True
    assert query.start(pattern()) == []
    query.broker.mute = False
    assert query.read() == before


@pytest.mark.parametrize("reading", [pattern(), named("a", "b")])
@pytest.mark.parametrize("gone_at_start", [True, False])
@pytest.mark.parametrize("ended", [True, False])
def test_a_topic_that_is_made_anew_while_the_query_runs_ends_it(tmp_path, reading, gone_at_start, ended):
    query = Checkpoint(tmp_path, Broker("a", "b"))
    query.start(reading)
    before = query.read()
    if gone_at_start:
        del query.broker.topics["b"]
        query.start(reading)
    running = query.running()
    running.note()
    query.broker.topics.pop("b", None)
    running.note()  # the query goes on without it
    query.broker.make("b")
    query.read(noted=False, ended=ended)
    with pytest.raises(UsageError, match=r"The topic b was deleted and made anew .* counts twice what this run has"):
        running.note()
    running.note(last=True)
    assert query.start(reading) == ["b"]
    after = query.read()
    assert after[0, "a"] == before[0, "a"]
    assert after[0, "b"] != before[0, "b"]


def test_a_query_that_needs_what_is_gone_ends_with_what_its_next_start_says(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(named("a", loses=False))
    running = query.running()
    query.broker.make("a")
    refused = "The topic a was deleted and made anew: what this checkpoint has read of it is gone"
    with pytest.raises(UsageError, match=refused):
        running.note()
    with pytest.raises(UsageError, match=refused):
        query.start(named("a", loses=False))


def test_a_topic_made_anew_that_no_source_reads_is_nothing_to_a_running_query(tmp_path):
    query = Checkpoint(tmp_path, Broker("a", "b"))
    query.start(named("a", "b"))
    query.start(named("a"))
    query.broker.make("b")
    query.running().note()
    assert query.broker.asked[-1] == {"a"}


def test_a_listed_topic_that_comes_while_the_query_runs_is_another_one_when_it_is_made_anew(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(named("a", "b"))
    query.broker.make("b")
    before = query.read()
    query.broker.make("b")
    assert query.start(named("a", "b")) == ["b"]
    assert query.read()[0, "b"] != before[0, "b"]


def test_a_broker_is_asked_at_each_look_or_once_a_second_and_after_a_minute_when_it_does_not_answer(tmp_path):
    query, times = Checkpoint(tmp_path, Broker("a")), [0.0]
    query.start(named("a"))
    looks = {every: query.running(every_s=every, now=lambda: times[0]) for every in (0.0, 1.0)}
    for seconds, mute, asked in (
        (0.0, False, {0.0, 1.0}), (0.9, False, {0.0}), (1.0, True, {0.0, 1.0}), (60.9, False, set()),
        (61.0, False, {0.0, 1.0}), (61.9, False, {0.0}),
    ):  # fmt: skip
        times[0], query.broker.mute = seconds, mute
        for every, running in looks.items():
            query.broker.asked.clear()
            running.note()
            assert query.broker.asked == ([{"a"}] if every in asked else []), seconds


def test_a_topic_that_the_broker_says_nothing_of_holds_no_other_one_back(tmp_path):
    query, times = Checkpoint(tmp_path, Broker("a", "b")), [0.0]
    query.start(named("a", "b", loses=True))
    running = query.running(every_s=0.0, now=lambda: times[0])
    query.broker.hidden = {"b"}
    asked = []
    for times[0] in (0.0, 0.9, 1.0, 2.9, 3.0, 6.9, 7.0):
        running.note()
        asked.append("b" in query.broker.asked[-1])
        assert "a" in query.broker.asked[-1]
    assert asked == [True, False, True, False, True, False, True]
    query.broker.make("a")
    with pytest.raises(UsageError, match="The topic a was deleted and made anew"):
        running.note()


def test_a_broker_that_answers_late_is_left_alone_for_a_minute(tmp_path):
    query, times = Checkpoint(tmp_path, Broker("a")), iter([0.0, 0.0, 2.1, 62.0, 62.2, 62.2, 62.2])
    query.start(named("a"))
    running = query.running(now=lambda: next(times))
    query.broker.asked.clear()
    for asked in (1, 1, 2):
        running.note()
        assert len(query.broker.asked) == asked


def test_the_last_look_waits_for_nothing_and_asks_only_for_ids_that_are_not_known(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    running = query.running(every_s=1.0, now=lambda: 0.0)
    running.note()
    query.read(noted=False)
    running.note(last=True)
    assert json.loads(Topics.noted(query.own))["ids"] == {"a": "id-0"}
    running.note(last=True)
    assert query.broker.asked[-2:] == [{"a"}, set()]


def test_a_number_that_was_a_former_topics_is_no_reason_to_ask_for_names(tmp_path, caplog):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    query.read(ended=False)
    query.broker.make("a")
    assert query.start(pattern()) == ["a"]
    query.broker.mute = True
    query.running().note()
    assert caplog.messages == ["Topic a was deleted and made anew: the query goes on with its new records."]


def test_offsets_of_a_source_that_is_no_kafka_topic_are_not_looked_at(tmp_path):
    here = Checkpoint(tmp_path, Broker())
    (here.location / "offsets" / "0").write_text('v1\n{}\n{"partition-1": {"index": 3}}')
    assert here.start() == []
    assert here.start(Reading(None)) == []
