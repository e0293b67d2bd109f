"""Numbers of the input's topics, by which records of equal partition and offset are told apart.

The identity of a record is its topic, by the id that the broker gave it, its partition and its offset. Workers know the
first two as one number, the *input partition*: the topic's number times 2^20, and the partition. A topic that the
query names gets the next free number, from 0, which the checkpoint keeps; one that matches a pattern, and may come
while the query runs, has a hash of its name. A topic that was deleted and made anew is another one, with a new number.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Reading:
    """What one Kafka source of the plan reads.

    Attributes:
        topics: those that it names; None for a pattern.
        place: its place among the Kafka sources of the plan.
        loses: it goes on where records are gone (`failOnDataLoss` is false).
    """

    topics: tuple[str, ...] | None
    place: int = 0
    loses: bool = False

    def may_read(self, topic: str) -> bool:
        """Returns whether the topic can be one of its."""
        return self.topics is None or topic in self.topics


def reading_of(options: Mapping[str, str], place: int) -> Reading:
    """Returns what a source reads by its options, names in lower case; raises ValueError where they do not say."""
    loses = options.get("failondataloss", "true").lower() == "false"
    if "subscribe" in options:
        return Reading(tuple(name.strip() for name in options["subscribe"].split(",") if name.strip()), place, loses)
    if "assign" in options:
        return Reading(tuple(sorted(json.loads(options["assign"]))), place, loses)
    return Reading(None, place, loses)


@dataclass(frozen=True)
class Topics:
    """The topics of a query.

    Attributes:
        readings: the Kafka sources, in the order of the plan.
        numbers: of topics, by the name that `name` gives; those of a pattern only if they were made anew.
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

    def name(self, reading: Reading, topic: str) -> str:
        """Returns the topic's name in one source: a second source of the same topic reads its records again.

        `#` cannot be in a topic's name.
        """
        again = reading.topics is None or any(other.may_read(topic) for other in self.readings[: reading.place])
        return f"{topic}#{reading.place}" if again and reading.place else topic

    def number(self, name: str) -> int:
        """Returns the number of a name."""
        return self.numbers.get(name, _HASHED | (hash_bytes(name.encode()) & (_HASHED - 1)))

    def input_partitions(self, topic: str, partition: int) -> list[int]:
        """Returns the input partitions of a topic's partition, one for each source that can read it."""
        names = [self.name(reading, topic) for reading in self.readings if reading.may_read(topic)]
        return [self.number(name) << PARTITION_BITS | partition for name in names]

    def by_number(self) -> dict[int, str]:
        """Returns the topics' names by their numbers, for messages."""
        return {number: name.partition("#")[0] for name, number in self.numbers.items()}

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
        numbers = {topic: self.number(self.name(reading, topic)) for topic in reading.topics or ()}
        if len(numbers) == 1:
            return f"{next(iter(numbers.values()))}L"
        return _cases(numbers)

    def _pattern_sql(self, reading: Reading) -> str:
        suffix = f"#{reading.place}" if reading.place else ""
        hashed = f"(xxhash64(concat(topic, '{suffix}')) & {_HASHED - 1}L) | {_HASHED}L"
        topics = {name.partition("#")[0] for name in self.numbers}
        own = {topic: n for topic in topics if (n := self.numbers.get(self.name(reading, topic))) is not None}
        return _cases(own, hashed) if own else hashed

    def numbered(self) -> "Topics":
        """Returns the topics with a number for each that a source names, or that one has read by a pattern.

        A topic that a pattern has found keeps its number when it is named at a later start.
        """
        numbers = dict(self.numbers)
        for topic in self.ids:
            for reading in (reading for reading in self.readings if reading.topics is None):
                numbers.setdefault(name := self.name(reading, topic), self.number(name))
        for reading in self.readings:
            for topic in reading.topics or ():
                numbers.setdefault(self.name(reading, topic), _next(numbers, self.former))
        return replace(self, numbers=numbers)

    def found(self, ids: Mapping[str, str]) -> tuple["Topics", list[str]]:
        """Returns the topics with the ids that the broker gives them now, and those that were made anew.

        Raises UsageError for one that was made anew where a source does not go on without what is gone.
        """
        renewed = sorted(topic for topic, id_ in ids.items() if self.ids.get(topic, id_) != id_)
        numbers, former = dict(self.numbers), [*self.former]
        for topic in renewed:
            for reading in (reading for reading in self.readings if reading.may_read(topic)):
                if not reading.loses:
                    raise UsageError(
                        f"The topic {topic} was deleted and made anew: what this checkpoint has read of it is gone, "
                        "and its offsets name other records now. Begin with a new checkpoint, or give each source that "
                        "names the topic or a pattern the option failOnDataLoss=false to go on with the new topic."
                    )
                name = self.name(reading, topic)
                former.append(self.number(name))
                numbers[name] = _next(numbers, former)
        found = replace(self, numbers=numbers, ids={**self.ids, **ids}, former=tuple(former))
        return found.numbered(), renewed

    @staticmethod
    def noted(folder: Path) -> bytes:
        """Returns what `keep` has written, b"" for nothing."""
        path = folder / _FILE
        return path.read_bytes() if path.exists() else b""

    @classmethod
    def read(cls, folder: Path, readings: Sequence[Reading]) -> "Topics":
        """Returns the topics that a checkpoint knows, for sources; raises UsageError when its file is damaged."""
        path = folder / _FILE
        try:
            data = json.loads(path.read_bytes())
            numbers, ids, former = dict(data["numbers"]), dict(data["ids"]), tuple(data["former"])
        except FileNotFoundError:
            return cls(tuple(readings)).numbered()
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
        return cls(tuple(readings), numbers, ids, former).numbered()

    def keep(self, folder: Path, *, fsync: bool = False) -> None:
        """Writes what `read` reads; raises StateError when that fails."""
        data: dict[str, Any] = {"numbers": dict(self.numbers), "ids": dict(self.ids), "former": list(self.former)}
        replace_bytes(folder / _FILE, json.dumps(data, indent=1).encode(), fsync=fsync)


def _next(numbers: Mapping[str, int], former: Iterable[int]) -> int:
    """Returns the first number behind those in use that is no hash."""
    return 1 + max((number for number in (*numbers.values(), *former) if number < _HASHED), default=-1)


def _cases(numbers: Mapping[str, int], other: str = "") -> str:
    cases = " ".join(f"WHEN '{topic}' THEN {number}L" for topic, number in sorted(numbers.items()))
    return f"(CASE topic {cases} {f'ELSE {other} ' if other else ''}END)"
