"""Topics from start to start: each topic of each source has one number as long as it lives, and no other has it."""

import json
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import StateError, UsageError
from impls.spark.known import FoundTopics, topics_at_start
from impls.spark.source import InputLog
from impls.spark.topics import Reading, Topics

NAMES = "abcd"


class Broker:
    """Topics by name; each that is made has an id of its own. `mute` lets it answer nothing."""

    def __init__(self, *topics: str):
        self._numbers, self.topics, self.mute, self.end = count(), {}, False, 100
        self.make(*topics)

    def make(self, *topics: str) -> None:
        self.topics |= {topic: f"id-{next(self._numbers)}" for topic in topics}

    def ids(self, topics) -> dict[str, str]:
        return {} if self.mute else {topic: self.topics[topic] for topic in topics if topic in self.topics}

    def names(self) -> set[str]:
        if self.mute:
            raise StateError("The broker does not name its topics: it is down.")
        return set(self.topics)

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

        A batch of real-time mode that has not ended has no offsets in Spark's log, only those behind the last tick.
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
            self.found().note()
        return numbers

    def found(self, **more) -> FoundTopics:
        return FoundTopics(self.topics, self.own, self.location, self.broker, fsync=False, **more)


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
        if late := data.draw(some) - broker.topics.keys():
            broker.make(*late)
            first |= late
        noted = data.draw(st.booleans()) or bool(late & query.topics.ids.keys())
        try:
            numbers = query.read(noted=noted, ended=data.draw(st.booleans()))
        except UsageError:
            assert late & query.topics.absent
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


@pytest.mark.parametrize("ended", [True, False])
def test_a_topic_that_was_deleted_before_the_start_and_comes_while_the_query_runs_ends_it(tmp_path, ended):
    query = Checkpoint(tmp_path, Broker("a", "b"))
    query.start(pattern())
    before = query.read()
    del query.broker.topics["b"]
    query.start(pattern())
    found = query.found(now=lambda: 0.0)
    query.read(noted=False)
    found.note()
    query.broker.make("b")
    query.read(noted=False, ended=ended)
    with pytest.raises(UsageError, match="The topic b was deleted before this start and has been made anew"):
        found.note()
    query.found().note(last=True)
    assert query.start(pattern()) == ["b"]
    assert query.read()[0, "b"] != before[0, "b"]


def test_a_broker_is_asked_at_most_once_a_second_and_seldom_when_it_does_not_answer(tmp_path):
    query, times = Checkpoint(tmp_path, Broker("a")), [0.0]
    query.start(pattern())
    found = query.found(now=lambda: times[0])
    found.note()
    query.read(noted=False)
    for seconds, mute, known in ((0.9, False, {}), (1.0, True, {}), (60.9, False, {}), (61.0, False, {"a": "id-0"})):
        times[0], query.broker.mute = seconds, mute
        found.note()
        assert json.loads(Topics.noted(query.own))["ids"] == known


def test_the_last_look_waits_for_nothing(tmp_path):
    query = Checkpoint(tmp_path, Broker("a"))
    query.start(pattern())
    found = query.found(now=lambda: 0.0)
    found.note()
    query.read(noted=False)
    found.note(last=True)
    assert json.loads(Topics.noted(query.own))["ids"] == {"a": "id-0"}


def test_offsets_of_a_source_that_is_no_kafka_topic_are_not_looked_at(tmp_path):
    here = Checkpoint(tmp_path, Broker())
    (here.location / "offsets" / "0").write_text('v1\n{}\n{"partition-1": {"index": 3}}')
    assert here.start() == []
    assert here.start(Reading(None)) == []


def test_a_missing_topic_is_asked_for_until_it_is_there_again_as_it_was(tmp_path, monkeypatch):
    broker = Broker("a")
    here, lives = Checkpoint(tmp_path, broker), dict(broker.topics)
    here.start(Reading(None))
    here.read()
    broker.topics.clear()
    here.start(Reading(None))
    broker.topics |= lives
    found, asked = here.found(), []
    monkeypatch.setattr(broker, "ids", lambda topics: asked.append(topics) or {one: lives[one] for one in topics})
    for _ in range(5):
        found.note()
    assert asked == [{"a"}]
