"""A record of the control topic as a command: what it says, when it holds, which of two comes first. Pure.

A command has a *bound*: the offsets of the input from which on it holds. A time's bound is, in each partition, the
first offset whose record is of that time or later. An epoch reaches a bound when it begins at or behind it in every
partition. Commands that one epoch reaches are carried out in the order of their bounds, so that two queries on one
input carry them out in the same order though their epochs begin elsewhere.
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from impls.errors import UsageError
from impls.protocol.jsontext import from_text

Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""

_OWN = ("id", "sender", "queries", "from", "answer")  # the rest of a record is the request
_ID_MAX = 200
_DEPTH_MAX = 20  # what is written into the journal, and answered, is a few levels deeper
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class BadCommandError(UsageError):
    """A record is no command; the message says why.

    Attributes:
        id: the record's id, empty for one that has none.
    """

    def __init__(self, message: str, id_: str = ""):
        super().__init__(message)
        self.id = id_


@dataclass(frozen=True, slots=True)
class ControlCommand:
    """A command of the control topic.

    Attributes:
        id: names the command among all of the topic.
        sender: who sent it, for those who read the log.
        request: what `impls.driver.control` takes: `do` and its arguments.
        at: partition and offset of its record in the control topic.
        time_ms: it holds when the input has reached this time, ms since the Unix epoch; None for no such condition.
        offsets: it holds when the input has reached these offsets; None for no such condition.
        answer: topic that takes the answer, empty for the usual one.
        checksum: CRC-32 of the record's value, equal for what a sender repeats.
    """

    id: str
    sender: str
    request: dict[str, Any]
    at: tuple[int, int]
    time_ms: int | None
    offsets: Offsets | None
    answer: str
    checksum: int

    @property
    def conditional(self) -> bool:
        """Whether it waits for a place in the input."""
        return self.time_ms is not None or self.offsets is not None

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary."""
        offsets = None if self.offsets is None else in_text(self.offsets)
        return {**asdict(self), "at": list(self.at), "offsets": offsets}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ControlCommand":
        """Reads what `to_json` wrote."""
        offsets = None if data["offsets"] is None else offsets_of(data["offsets"])
        return cls(**{**data, "at": tuple(data["at"]), "offsets": offsets})


def read_command(value: bytes, at: tuple[int, int], query: str) -> ControlCommand | None:
    """Returns the command of a record, None for one that is not for this query.

    Args:
        value: JSON: `id`, `do` and the arguments of `do`; optional are `sender`, `queries` (names; without it all),
            `answer` (a topic) and `from`: {"time": ms since the Unix epoch, or ISO 8601 with a zone} or
            {"offsets": {topic: {partition: offset}}}.
        at: partition and offset of the record.
        query: this query's name.

    Raises:
        BadCommandError: it is none.
    """
    try:
        data = from_text(value)
    except ValueError:
        raise BadCommandError("The record is no JSON.") from None
    if not isinstance(data, dict) or not isinstance(id_ := data.get("id"), str) or not 0 < len(id_) <= _ID_MAX:
        raise BadCommandError(f"The record has no id, a text of 1 to {_ID_MAX} characters.")
    try:
        return _command_of(data, at, zlib.crc32(value)) if _is_for(data.get("queries"), query) else None
    except BadCommandError as error:
        raise BadCommandError(str(error), id_) from None


def _check_depth(value: Any) -> None:
    """Raises BadCommandError for JSON that is nested deeper than a journal and an answer can be."""
    found = [value]
    for _ in range(_DEPTH_MAX):
        found = [part for one in found for part in _parts(one)]
    if any(isinstance(one, dict | list) for one in found):
        raise BadCommandError(f"The record is nested more than {_DEPTH_MAX} deep.")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def in_text(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Returns offsets as JSON has them, whose names are texts."""
    return {topic: {str(part): at for part, at in parts.items()} for topic, parts in offsets.items()}


def offsets_of(given: dict[str, dict[str, int]]) -> Offsets:
    """Reads what `in_text` gave; raises AttributeError, TypeError or ValueError for anything else."""
    return {topic: {int(part): at for part, at in parts.items()} for topic, parts in given.items()}


def _is_for(queries: Any, query: str) -> bool:
    if queries is None:
        return True
    if not isinstance(queries, list) or not all(isinstance(name, str) for name in queries):
        raise BadCommandError("The field queries is a list of the names of queries.")
    return query in queries


def _command_of(data: dict[str, Any], at: tuple[int, int], checksum: int) -> ControlCommand:
    _check_depth(data)
    sender, answer = data.get("sender", ""), data.get("answer", "")
    if not isinstance(sender, str):
        raise BadCommandError("The field sender is a text.")
    if answer and not (isinstance(answer, str) and _TOPIC.fullmatch(answer)):
        raise BadCommandError("The field answer is the name of a topic.")
    request = {name: given for name, given in data.items() if name not in _OWN}
    if "code" in request:
        raise BadCommandError("A command brings no code: it names what `./inv pipeline.offer` puts into a checkpoint.")
    if not isinstance(request.get("do"), str):
        raise BadCommandError("The field do says what is asked for, such as rescale.")
    time_ms, offsets = _condition(data.get("from"))
    return ControlCommand(data["id"], sender, request, at, time_ms, offsets, answer or "", checksum)


def _condition(value: Any) -> tuple[int | None, Offsets | None]:
    if value is None:
        return None, None
    if isinstance(value, dict) and list(value) == ["time"]:
        return _time_ms(value["time"]), None
    if isinstance(value, dict) and list(value) == ["offsets"] and (offsets := _checked(value["offsets"])):
        return None, offsets
    raise BadCommandError('The field from is {"time": ...} or {"offsets": {topic: {partition: offset}}}.')


def _time_ms(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        when = None
    if when is None or when.tzinfo is None:
        raise BadCommandError("A time is a number of ms since the Unix epoch, or ISO 8601 with its zone.")
    return max(0, round(when.timestamp() * 1000))  # what is below means something else to Kafka


def _checked(given: Any) -> Offsets | None:
    """Returns offsets if they are some."""
    try:
        offsets = offsets_of(given)
    except (AttributeError, TypeError, ValueError):
        return None
    numbers = [number for parts in offsets.values() for pair in parts.items() for number in pair]
    fits = all(offsets.values()) and all(type(n) is int and n >= 0 for n in numbers)
    return offsets if fits else None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A command that was read and is not carried out.

    Attributes:
        command: the command.
        since: the first epoch that could be planned with it.
        bound: offsets from which on it holds; None without a condition, and while its time has none.
    """

    command: ControlCommand
    since: int
    bound: Offsets | None

    def reached(self, begin: Offsets | None) -> bool:
        """Returns whether an epoch that begins at these offsets, None for unknown ones, reaches its bound."""
        if not self.command.conditional:
            return True
        if self.bound is None or begin is None:
            return False
        return all(
            begin.get(topic, {}).get(part, -1) >= at
            for topic, parts in self.bound.items()
            for part, at in parts.items()
        )

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts the commands that one epoch reaches: by bound, time, partition and offset of the control topic.

        If one bound is nowhere behind another, its sum is not greater. Without a condition a command holds from the
        epoch's own begin, where no bound that it reaches is behind it.
        """
        if self.bound is None:
            return (1, 0, 0, self.command.at)
        return (
            0,
            sum(sum(parts.values()) for parts in self.bound.values()),
            self.command.time_ms or 0,
            self.command.at,
        )

    def lacking(self, begin: Offsets) -> str:
        """Returns why no epoch of a query can reach it, one of which begins at these offsets; nothing if one can."""
        if not self.command.conditional:
            return ""
        if not begin:
            return "There are no offsets to wait for: the query reads no Kafka topic, or several in real-time mode."
        for topic, parts in (self.command.offsets or {}).items():
            if topic not in begin:
                return f"The query does not read the topic {topic}."
            if lacking := sorted(set(parts) - set(begin[topic])):
                return f"The query reads no partition {lacking[0]} of the topic {topic}."
        return ""
