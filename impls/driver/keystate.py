"""What a reader of state gets: rows, and the state of one key."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


class StateRow(NamedTuple):
    """A piece of a key's state.

    Attributes:
        bin: the key's bin.
        key: an int, a str or bytes, or a Row of the key's columns.
        kind: value, list, map or timer.
        name: of the state variable, "" for the only one.
        field: key of a map's field, or place of a list's item from 0; None for the others.
        value: as the operator gave it; of aggregates a Row of the results; of a timer its time.
    """

    bin: int
    key: Any
    kind: str
    name: str
    field: Any
    value: Any


@dataclass(frozen=True)
class KeyState:
    """The state of a key as a worker's last commit has left it; it is false where the key has none.

    Attributes:
        key: the key as rows of state have it.
        epoch: the last epoch of which it has everything; in real time it may have more, of the epoch under way.
        rows: all that the key has.
    """

    key: Any
    epoch: int
    rows: tuple[StateRow, ...]

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def value(self) -> Any:
        """The key's value, where it has one without a name: of `StatefulMap`, `KeyedProcess`, counts, aggregates."""
        return self.values.get("")

    @property
    def values(self) -> dict[str, Any]:
        """Values by the names of their state variables."""
        return {row.name: row.value for row in self._of("value")}

    @property
    def lists(self) -> dict[str, list[Any]]:
        """Lists by the names of their state variables."""
        out: dict[str, list[Any]] = {}
        for row in self._of("list"):
            out.setdefault(row.name, []).append(row.value)
        return out

    @property
    def maps(self) -> dict[str, dict[Any, Any]]:
        """Maps by the names of their state variables; an array in the key of a field is a tuple."""
        out: dict[str, dict[Any, Any]] = {}
        for row in self._of("map"):
            out.setdefault(row.name, {})[_hashable(row.field)] = row.value
        return out

    @property
    def timers(self) -> list[int]:
        """Times of the key's timers, ascending."""
        return sorted(row.value for row in self._of("timer"))

    def _of(self, kind: str) -> Iterator[StateRow]:
        return (row for row in self.rows if row.kind == kind)


def _hashable(field: Any) -> Any:
    """Returns a key of a map's field with tuples for lists, at any depth; Rows without lists stay what they are."""
    try:
        hash(field)
    except TypeError:
        return tuple(_hashable(part) for part in field)
    return field
