"""Numbers of the input's topics, by which records of equal partition and offset are told apart.

The identity of a record is its source, its topic, by the id that the broker gave it, its partition and its offset.
Workers know the first three as one number, the *input partition*: the number of a topic in a source times 2^20, and the
partition. A topic that the query names gets the next free number, from 0, which the checkpoint keeps; one that matches
a pattern, and may come while the query runs, has a hash of its name. A topic that was deleted and made anew is another
one, with a new number. As for Spark, a source is its place among the sources of the query.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError
from impls.store.hashing import hash_bytes
from impls.store.offsets import PARTITION_BITS

_HASH_BITS = 42  # the bit above them is set, so that no number from 0 on is one
_HASHED = 1 << _HASH_BITS
_FILE = "topics.json"
LINKED = "rescale.results"
"""Option of a Kafka source that reads another query's results; Spark passes over it."""


@dataclass(frozen=True)
class Reading:
    """What one Kafka source of the plan reads.

    Attributes:
        topics: those that it names; None for a pattern.
        place: its place among the Kafka sources of the plan.
        loses: it goes on where records are gone (`failOnDataLoss` is false).
        linked: it reads another query's results, see `impls.spark.links`.
        assigned: how many partitions it names; 0 where it reads all of its topics.
    """

    topics: tuple[str, ...] | None
    place: int = 0
    loses: bool = False
    linked: bool = False
    assigned: int = 0

    def partitions(self, known: Mapping[str, Collection[int]]) -> int:
        """Returns how many partitions it reads, by those that a broker's topics have; 0 for a pattern."""
        return self.assigned or sum(len(known.get(topic, ())) for topic in self.topics or ())

    def may_read(self, topic: str) -> bool:
        """Returns whether the topic can be one of its."""
        return self.topics is None or topic in self.topics


def reading_of(options: Mapping[str, str], place: int) -> Reading:
    """Returns what a source reads by its options, names in lower case; raises ValueError where they do not say."""
    loses, linked = options.get("failondataloss", "true").lower() == "false", LINKED in options
    topics: tuple[str, ...] | None = None
    assigned = 0
    if "subscribe" in options:
        topics = tuple(name.strip() for name in options["subscribe"].split(",") if name.strip())
    elif "assign" in options:
        named = json.loads(options["assign"])
        topics = tuple(sorted(named))
        assigned = sum(len(some) for some in named.values() if isinstance(some, list))  # Spark refuses other values
    return Reading(topics, place, loses, linked, assigned)


@dataclass(frozen=True)
class Topics:
    """The topics of a query.

    Attributes:
        readings: the Kafka sources, in the order of the plan.
        numbers: of topics, by topic and place among the sources; those of a pattern when they have been read.
        ids: by topic, the broker's id of it.
        former: numbers of topics that were made anew since; they never come again.
    """

    readings: tuple[Reading, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    former: tuple[int, ...] = ()

    @property
    def listed(self) -> set[str]:
        """Topics that the sources name."""
        return {topic for reading in self.readings for topic in reading.topics or ()}

    def names(self, topic: str, readings: Sequence[Reading] | None = None) -> list[str]:
        """Returns the topic's names in those of some sources, of all by default, that can read it."""
        chosen = self.readings if readings is None else readings
        return [_name_of(topic, reading.place) for reading in chosen if reading.may_read(topic)]

    def numbers_of(self, topic: str) -> set[int]:
        """Returns the numbers that a topic has in all sources, and those that it has had where a pattern found it."""
        names = [_name_of(topic, reading.place) for reading in self.readings]
        return {number for name in names for number in (self.number(name), hashed(name))}

    def number(self, name: str) -> int:
        """Returns the number of a name."""
        return self.numbers.get(name, hashed(name))

    def input_partitions(self, topic: str, partition: int, readings: Sequence[Reading] | None = None) -> list[int]:
        """Returns the input partitions of a topic's partition, one for each of some sources that can read it."""
        return [self.number(name) << PARTITION_BITS | partition for name in self.names(topic, readings)]

    def by_number(self) -> dict[int, str]:
        """Returns the topics' names by their numbers."""
        return {number: _topic_of(name) for name, number in self.numbers.items()}

    def is_gone(self, input_partition: int) -> bool:
        """Returns whether an input partition was that of a topic that was made anew since."""
        return input_partition >> PARTITION_BITS in self.former

    def sql(self, reading: Reading) -> str:
        """Returns the input partition of a source's record, by its columns topic and partition, as SQL.

        Spark plans it in each epoch: the general form takes 0.6 ms more.
        """
        if set(self.numbers.values()) == {0} and not self.former and reading.topics is not None:
            return "bigint(partition)"
        number = self._pattern_sql(reading) if reading.topics is None else self._listed_sql(reading)
        most = 1 << PARTITION_BITS
        refused = f"raise_error(concat('Topic ', topic, ' has more than {most} partitions.'))"
        return f"if(partition < {most}, shiftleft({number}, {PARTITION_BITS}) + partition, {refused})"

    def _listed_sql(self, reading: Reading) -> str:
        numbers = {topic: self.number(_name_of(topic, reading.place)) for topic in reading.topics or ()}
        if len(numbers) == 1:
            return f"{next(iter(numbers.values()))}L"
        return _cases(numbers)

    def _pattern_sql(self, reading: Reading) -> str:
        any_ = f"(xxhash64(concat(topic, '{_name_of('', reading.place)}')) & {_HASHED - 1}L) | {_HASHED}L"
        topics = {_topic_of(name) for name in self.numbers}
        own = {topic: n for topic in topics if (n := self.numbers.get(_name_of(topic, reading.place))) is not None}
        return _cases(own, any_) if own else any_

    def numbered(self) -> "Topics":
        """Returns the topics with a number for each that a source names."""
        numbers = dict(self.numbers)
        for reading in self.readings:
            for topic in reading.topics or ():
                numbers.setdefault(_name_of(topic, reading.place), _next(numbers, self.former))
        return replace(self, numbers=numbers)

    def having_read(self, topics: Iterable[str], ids: Mapping[str, str]) -> "Topics":
        """Returns the topics with what is known of some that the query has read: numbers, and ids that are new.

        One that a pattern has found, in whatever source, keeps its number when it is named at a later start.
        """
        names = [_name_of(topic, reading.place) for topic in topics for reading in self.readings]
        numbers = {**{name: hashed(name) for name in names}, **self.numbers}
        return replace(self, numbers=numbers, ids={**ids, **self.ids})

    def update_ids(self, ids: Mapping[str, str], others: Collection[str] = ()) -> tuple["Topics", list[str]]:
        """Returns the topics with the ids that the broker gives them now, and those that were made anew.

        Args:
            ids: by topic.
            others: topics that are known to be other ones than were read, whatever their ids.

        Raises:
            UsageError: one was made anew, and a source does not go on without what is gone.
        """
        renewed = sorted({*others, *(topic for topic, id_ in ids.items() if self.ids.get(topic, id_) != id_)})
        numbers, former = dict(self.numbers), [*self.former]
        for topic in renewed:
            self.check_loses(topic)
            known = [name for name in self.numbers if _topic_of(name) == topic]  # also in a source of an earlier start
            for name in sorted({*known, *self.names(topic)}):
                former.append(self.number(name))
                numbers[name] = _next(numbers, former)
        return Topics(self.readings, numbers, {**self.ids, **ids}, tuple(former)).numbered(), renewed

    def check_loses(self, topic: str) -> None:
        """Raises UsageError where a source that can read a topic made anew does not go on without what is gone."""
        if any(reading.may_read(topic) and not reading.loses for reading in self.readings):
            raise UsageError(
                f"The topic {topic} was deleted and made anew: what this checkpoint has read of it is gone, and its "
                "offsets name other records now. Begin with a new checkpoint, or give each source that names the "
                "topic or a pattern the option failOnDataLoss=false to go on with the new topic."
            )

    @staticmethod
    def noted(folder: Path) -> bytes:
        """Returns what `keep` has written, b"" for nothing."""
        path = folder / _FILE
        return path.read_bytes() if path.exists() else b""

    @classmethod
    def read(cls, folder: Path, readings: Sequence[Reading], topics: Collection[str] = ()) -> "Topics":
        """Returns the topics that a checkpoint knows; raises UsageError when its file is damaged.

        Args:
            folder: this project's part of the checkpoint.
            readings: the sources of the query now.
            topics: those that it has read, by whatever source.
        """
        path = folder / _FILE
        try:
            data = json.loads(path.read_bytes())
            numbers, ids, former = dict(data["numbers"]), dict(data["ids"]), tuple(data["former"])
        except FileNotFoundError:
            return cls(tuple(readings)).numbered()
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
        return cls(tuple(readings), numbers, ids, former).having_read(topics, {}).numbered()

    def keep(self, folder: Path, *, fsync: bool = False) -> None:
        """Writes what `read` reads; raises StateError when that fails."""
        data: dict[str, Any] = {"numbers": dict(self.numbers), "ids": dict(self.ids), "former": list(self.former)}
        replace_bytes(folder / _FILE, json.dumps(data, indent=1).encode(), fsync=fsync)


def _name_of(topic: str, place: int) -> str:
    """Returns the name of a topic in one source; `#` cannot be in a topic's own."""
    return f"{topic}#{place}" if place else topic


def _topic_of(name: str) -> str:
    return name.partition("#")[0]


def hashed(name: str) -> int:
    """Returns the number of a name that a pattern has found."""
    return _HASHED | (hash_bytes(name.encode()) & (_HASHED - 1))


def _next(numbers: Mapping[str, int], former: Iterable[int]) -> int:
    """Returns the first number behind those in use that is no hash."""
    return 1 + max((number for number in (*numbers.values(), *former) if number < _HASHED), default=-1)


def _cases(numbers: Mapping[str, int], other: str = "") -> str:
    cases = " ".join(f"WHEN '{topic}' THEN {number}L" for topic, number in sorted(numbers.items()))
    return f"(CASE topic {cases} {f'ELSE {other} ' if other else ''}END)"
