"""What is known of the topics that a query reads, at its start and while it runs."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient

from impls.driver.arrivals import asking, end_offsets
from impls.driver.topicids import admin_of, describe, partitions_of
from impls.errors import StateError, UsageError
from impls.spark.source import read_offsets, read_partitions
from impls.spark.topics import Reading, Topics
from impls.store.offsets import PARTITION_BITS

_PAUSE_S = 1.0  # before a topic of which the broker says nothing is asked for again; then twice as long, and so on
_LATER_S = 60.0  # the broker has not answered, and each question may take seconds
ANSWER_S = 2.0
_LOG = logging.getLogger(__package__)


class TopicAdmin(Protocol):
    """What a broker says of topics."""

    def ids(self, topics: Collection[str]) -> tuple[dict[str, str], set[str]]:
        """Returns the ids of those topics that it has, and those of which it does not say whether it has them."""

    def partitions(self) -> dict[str, set[int]]:
        """Returns the partitions of all topics; raises StateError when it does not answer."""

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Returns the end offsets of partitions (topic, number) that there are.

        Raises StateError when it does not answer.
        """


class KafkaTopics:
    """Asks a broker what `TopicAdmin` says, by librdkafka's settings for it; ids in so many seconds."""

    def __init__(self, settings: Mapping[str, Any], within_s: float):
        self._settings, self._within_s = settings, within_s

    @cached_property
    def _client(self) -> AdminClient:
        return admin_of(self._settings)

    def ids(self, topics: Collection[str]) -> tuple[dict[str, str], set[str]]:
        """See `TopicAdmin`."""
        return describe(self._client, topics, self._within_s) if topics else ({}, set())

    def partitions(self) -> dict[str, set[int]]:
        """See `TopicAdmin`."""
        return partitions_of(self._settings, ANSWER_S)

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """See `TopicAdmin`."""
        return end_offsets(asking(self._settings), places, ANSWER_S)


def topics_at_start(
    own: Path, location: Path, readings: Sequence[Reading], broker: TopicAdmin | None
) -> tuple[Topics, list[str]]:
    """Returns the topics of a query, and those that were made anew since the last start.

    A topic that was read and whose id nobody has noted is another one where it ends in front of what was read, or has
    fewer partitions.

    Args:
        own: this project's part of the checkpoint.
        location: folder of Spark's own.
        readings: the sources.
        broker: theirs; None where there is none, or several.

    Raises:
        UsageError: a topic was made anew, and a source does not take that; or the note of topics is damaged.
    """
    if not readings:
        return Topics.read(own, readings), []
    begins = not Topics.noted(own)
    read = _topics_read(location, Topics.read(own, readings), broker)
    topics = Topics.read(own, readings, read)
    if broker is None:
        return topics, []
    unknown = set() if begins else {topic for topic in read - topics.ids.keys() if topics.names(topic)}
    ids, _ = broker.ids({*topics.listed, *topics.ids, *read})
    others = _shorter(location, unknown & ids.keys(), broker)  # one that is not there now may come as it was
    found, renewed = topics.update_ids(ids, others)
    for topic in sorted(unknown - others):
        _LOG.warning("The id of topic %s was not known yet: if it was made anew since, records are left out.", topic)
    for topic in renewed:
        _LOG.warning("Topic %s was deleted and made anew: the query goes on with its new records.", topic)
    return found, renewed


def _topics_read(location: Path, topics: Topics, broker: TopicAdmin | None) -> set[str]:
    """Returns the topics that the query has read by Spark's offsets, or by those that real-time mode notes.

    The latter have a number for a topic, and the broker has the name of one that may not be known.
    """
    names = {topic for topic, _ in read_offsets(location)}
    sure = {number for number, topic in topics.by_number().items() if topic in topics.ids} | {*topics.former}
    if unknown := {part >> PARTITION_BITS for part in read_partitions(location)} - sure:
        names |= {topic for topic in {*_names(broker), *topics.ids} if topics.numbers_of(topic) & unknown}
    return names


def _names(broker: TopicAdmin | None) -> set[str]:
    try:
        return set() if broker is None else {*broker.partitions()}
    except StateError as error:
        _LOG.warning("%s Topics that a pattern has found may stay unknown.", error)
        return set()


def _shorter(location: Path, topics: Collection[str], broker: TopicAdmin) -> set[str]:
    """Returns those of topics that end in front of what Spark has noted as read of them, or lack a partition of it."""
    read = {place: at for place, at in read_offsets(location).items() if place[0] in topics}
    try:
        there = broker.partitions() if read else {}
        ends = broker.ends([(topic, part) for topic, part in read if part in there.get(topic, ())])
    except StateError as error:
        _LOG.warning("%s It stays open whether topics %s were made anew.", error, ", ".join(sorted(topics)))
        return set()
    return {topic for (topic, part), at in read.items() if ends.get((topic, part), -1) < at}


class RunningTopics:
    """note() before each epoch and at the end: what a query reads is still the topics that it knows, by their ids.

    A listed topic that comes while the query runs, or one that a pattern finds, is kept with its id, without which the
    next start could not know that a topic of this name is another one. Spark names a topic in its offsets before the
    epoch that reads it first.

    Args:
        topics: as known at the start.
        own, location, broker: see `topics_at_start`.
        every_s: seconds between two looks, 0 for one before each epoch.
        fsync: whether what is noted must survive the host's failure.
        now: a clock that does not go back, in seconds.
    """

    def __init__(
        self, topics: Topics, own: Path, location: Path, broker: TopicAdmin, *, every_s: float, fsync: bool,
        now: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._topics, self._own, self._location, self._broker = topics, own, location, broker
        self._every_s, self._fsync, self._now, self._next = every_s, fsync, now, 0.0
        self._silent: dict[str, tuple[float, float]] = {}  # when they are asked for again, and the pause before, in s

    def note(self, *, last: bool = False) -> None:
        """Asks for the topics' ids in one request, the last time only for those that are not known.

        A broker that does not answer is left alone for a minute. One that answers, but says nothing of a topic, is
        asked for that again in a second, then in twice the time. A topic that is not there now is no failure.

        Raises:
            UsageError: a topic was made anew.
            StateError: what is new cannot be kept.
        """
        if not last and self._now() < self._next:
            return
        begin, known = self._now(), self._topics
        same = set() if last else {topic for topic in known.ids if known.names(topic)}
        waits = set() if last else {topic for topic, (until, _) in self._silent.items() if begin < until}
        ids, silent = self._broker.ids((same | self._unknown()) - waits)
        now = self._now()
        late = bool(silent and not ids) or now - begin > ANSWER_S
        self._next = now + (_LATER_S if late else self._every_s)
        self._silent = {topic: self._pause(topic, now) for topic in silent} | {t: self._silent[t] for t in waits}
        self._check_same(ids)
        if new := {topic: id_ for topic, id_ in ids.items() if topic not in known.ids}:
            self._topics = known.having_read(new, new)
            self._topics.keep(self._own, fsync=self._fsync)

    def _pause(self, topic: str, now: float) -> tuple[float, float]:
        _, before_s = self._silent.get(topic, (0.0, _PAUSE_S / 2))
        pause_s = min(2 * before_s, _LATER_S)
        return now + pause_s, pause_s

    def _unknown(self) -> set[str]:
        """Returns the topics that have no id yet; only a pattern finds others than the sources list."""
        topics = self._topics
        patterns = any(reading.topics is None for reading in topics.readings)
        read = _topics_read(self._location, topics, self._broker) if patterns else set()
        return (topics.listed | read) - topics.ids.keys()

    def _check_same(self, ids: Mapping[str, str]) -> None:
        """The numbers of a running query stay: one that finds another topic under a known name ends."""
        if renewed := sorted(topic for topic, id_ in ids.items() if self._topics.ids.get(topic, id_) != id_):
            self._topics.check_loses(renewed[0])
            raise UsageError(
                f"The topic {renewed[0]} was deleted and made anew while the query knew the former one: start the "
                "query again, which reads the new topic from its first record and counts twice what this run has "
                "already counted of it."
            )
