"""When a command of the control topic holds, and which of two comes first. Pure.

A command has a *bound*: the offsets of the input from which on it holds. A time's bound is, in each partition, the
first offset whose record is of that time or later. An epoch reaches a bound when it begins at or behind it in every
partition. Commands that one epoch reaches are carried out in the order of their bounds, so that two queries on one
input carry them out in the same order though their epochs begin elsewhere.
"""

from dataclasses import dataclass
from typing import Any

from impls.controltopic.commands import ControlCommand, Offsets

__all__ = ["Waiting"]


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
