"""What is known of the topics that a query reads: at its start, and while it runs of those that a pattern finds."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from impls.driver.arrivals import asking, end_offsets
from impls.driver.topicids import ids_of, names_of
from impls.errors import StateError, UsageError
from impls.spark.source import read_offsets, read_partitions
from impls.spark.topics import Reading, Topics
from impls.store.offsets import PARTITION_BITS

_LOOK_S = 1.0
_LATER_S = 60.0  # the broker has not answered, and each question may take seconds
_ANSWER_S = 2.0
_LOG = logging.getLogger(__package__)


class TopicAdmin(Protocol):
    """What a broker says of topics."""

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Returns the ids of topics, without those that it does not have."""

    def names(self) -> set[str]:
        """Returns the names of all topics; raises StateError when it does not answer."""

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Returns the end offsets of partitions (topic, number); raises StateError when it does not answer."""


class KafkaTopics:
    """Asks a broker what `TopicAdmin` says, by librdkafka's settings for it."""

    def __init__(self, settings: Mapping[str, Any]):
        self._settings = settings

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """See `TopicAdmin`."""
        return ids_of(self._settings, topics)

    def names(self) -> set[str]:
        """See `TopicAdmin`."""
        return names_of(self._settings, _ANSWER_S)

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """See `TopicAdmin`."""
        return end_offsets(asking(self._settings), places, _ANSWER_S)


def topics_at_start(
    own: Path, location: Path, readings: Sequence[Reading], broker: TopicAdmin | None
) -> tuple[Topics, list[str]]:
    """Returns the topics of a query, and those that were made anew since the last start.

    A topic that was read and whose id nobody has noted is another one where it ends in front of what was read.

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
    others = _shorter(location, unknown, broker)
    found, renewed = topics.found(broker.ids({*topics.listed, *topics.ids, *read}), others)
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
    sure = {number for number, topic in topics.by_number().items() if topic in topics.ids.keys() - topics.absent}
    if unknown := {part >> PARTITION_BITS for part in read_partitions(location)} - sure:
        names |= {topic for topic in {*_names(broker), *topics.ids} if topics.numbers_of(topic) & unknown}
    return names


def _names(broker: TopicAdmin | None) -> set[str]:
    try:
        return set() if broker is None else broker.names()
    except StateError as error:
        _LOG.warning("%s Topics that a pattern has found may stay unknown.", error)
        return set()


def _shorter(location: Path, topics: Collection[str], broker: TopicAdmin) -> set[str]:
    """Returns those of topics that end in front of what Spark has noted as read of them."""
    read = {place: at for place, at in read_offsets(location).items() if place[0] in topics}
    try:
        ends = broker.ends(read) if read else {}
    except StateError as error:
        _LOG.warning("%s It stays open whether topics %s were made anew.", error, ", ".join(sorted(topics)))
        return set()
    return {topic for (topic, part), at in read.items() if ends[topic, part] < at}


class FoundTopics:
    """note() before each epoch and at the end: a topic that a pattern has found is kept with its id.

    Without it the next start could not know that a topic of this name is another one. Spark names a topic in its
    offsets before the epoch that reads it first.

    Args:
        topics: as known at the start.
        own, location, broker: see `topics_at_start`.
        fsync: whether what is noted must survive the host's failure.
        now: a clock that does not go back, in seconds.
    """

    def __init__(
        self, topics: Topics, own: Path, location: Path, broker: TopicAdmin, *, fsync: bool,
        now: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._topics, self._own, self._location, self._broker = topics, own, location, broker
        self._fsync, self._now, self._next, self._later = fsync, now, 0.0, 0.0

    def note(self, *, last: bool = False) -> None:
        """Looks for new topics, at most once a second unless it is the last time, or one was missing at the start.

        Raises:
            UsageError: a topic that was not there at the start is made anew.
            StateError: what is found cannot be kept.
        """
        if not last and (self._now() < self._later or (self._now() < self._next and not self._topics.absent)):
            return
        self._next = self._now() + _LOOK_S
        known, absent = self._topics, self._topics.absent
        read = _topics_read(self._location, known, self._broker)
        if not (wanted := read - (known.ids.keys() - absent)):
            return
        begin, ids = self._now(), self._broker.ids(wanted)
        if wanted - ids.keys() - absent or self._now() - begin > _ANSWER_S:
            self._later = self._now() + _LATER_S
        if not last:
            self._check_same(ids)
        self._topics = replace(known, absent=absent - ids.keys())
        if ids.keys() - known.ids.keys():
            self._topics = self._topics.having_read(ids, ids)
            self._topics.keep(self._own, fsync=self._fsync)

    def _check_same(self, ids: Mapping[str, str]) -> None:
        """The numbers of a running query stay: one that finds another topic under a known name ends."""
        if renewed := sorted(topic for topic, id_ in ids.items() if self._topics.ids.get(topic, id_) != id_):
            raise UsageError(
                f"The topic {renewed[0]} was deleted before this start and has been made anew: start the query again, "
                "which takes it for another topic."
            )
