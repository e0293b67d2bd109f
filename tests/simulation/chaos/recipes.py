"""Pipelines that simulated queries change to, and what a record does under each: functions that both sides share."""

import json
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from impls.operators import StatefulMap

_PRIME = 1_000_003
BAD = 1000  # values from here on are those on which a rare failure comes
POISON = 1 << 20  # values from here on are those that no version can be given
ALL, RARE = 1, 2


class Broken(Exception):  # noqa: N818
    """The code of a version fails."""


@dataclass(frozen=True)
class Chain(StatefulMap):
    """Chains the values of a key, so that their order shows; some values delete the entry, some send nothing.

    Attributes:
        tag: of the version: it goes into each value.
        form: of the state, 0 for a list of two, else a list of three that ends with it.
        fails: ALL records, RARE ones, or none.
    """

    tag: int = 0
    form: int = 0
    fails: int = 0
    columns: ClassVar[tuple[str, ...]] = ("value",)
    key_type: ClassVar[Literal["binary", "long"]] = "binary"

    def update(self, key: bytes, record: dict[str, Any], state: Any) -> tuple[Any, Any]:
        """Chains a record."""
        return self.fold(state, record["value"])

    def fold(self, state: Any, value: int) -> tuple[Any, Any]:
        """Returns what `update` does."""
        if value >= POISON or self.fails == ALL or (self.fails == RARE and value >= BAD):
            raise Broken(f"value {value}")
        count, chain, *form = state or (0, 0, *([self.form] if self.form else []))
        if form != ([self.form] if self.form else []):
            raise Broken(f"the state has form {form}, not {self.form}")
        after = [count + 1, (chain * 31 + value + 1 + 7919 * self.tag) % _PRIME, *form]
        return (None if value % 7 == 0 else after), (None if value % 11 == 0 else after)


@dataclass(frozen=True)
class Reshape:
    """Commits a state of one form into one of another; done twice it gives something else. Some are deleted."""

    source: int
    target: int
    fails: int = 0
    add: int = 17

    def __call__(self, value: Any) -> Any:
        count, chain, *_ = value
        if self.fails and chain % self.fails == 0:
            raise Broken(f"chain {chain}")
        form = [self.target] if self.target else []
        return None if chain % 29 == 1 else [count, (chain * 3 + self.add) % _PRIME, *form]


@dataclass(frozen=True)
class Same:
    """A migration of state with event time that changes nothing, or fails."""

    fails: bool = False

    def __call__(self, value: Any, _name: str) -> Any:
        if self.fails:
            raise Broken("state")
        return value


@dataclass(frozen=True)
class Some:
    """Keeps the records of most keys; `every` 0 keeps all, -1 fails."""

    every: int

    def __call__(self, row: dict[str, Any]) -> bool:
        return self.keeps(row["key"])

    def keeps(self, key: Any) -> bool:
        """Returns whether it keeps records of a key."""
        if self.every < 0:
            raise Broken("a step")
        number = int.from_bytes(key, "big") if isinstance(key, bytes) else int(key)
        return not self.every or number % 5 != self.every % 5


@dataclass(frozen=True)
class Mark:
    """Appends a letter to a payload."""

    tag: int

    def __call__(self, _key: bytes, payload: bytes) -> bytes:
        return payload + bytes([ord("a") + self.tag % 26])


@dataclass(frozen=True)
class Recipe:
    """A version as the simulation knows it.

    Attributes:
        number, parent: of the version.
        chain: the operator, where it is a Chain.
        steps: by name, in order.
        migrate, back: as given.
        may_fail: the change may be refused on its own account.
        repairs: the version whose bins' state is taken for one of this version's shape, 0 for none.
    """

    number: int = 0
    parent: int = 0
    chain: Chain = field(default_factory=Chain)
    steps: tuple[tuple[str, Some | Mark], ...] = ()
    migrate: Any = None
    back: Any = None
    may_fail: bool = False
    repairs: int = 0

    @property
    def fails(self) -> int:
        """ALL or RARE where the code fails on records."""
        broken = any(isinstance(step, Some) and step.every < 0 for _, step in self.steps)
        return ALL if broken else self.chain.fails

    @property
    def may_keep(self) -> bool:
        """Whether bins may have to stay at it when it is refused: their state cannot go back."""
        return self.migrate is not None and (self.back is None or bool(self.back.fails))

    def next(self, number: int, **changed: Any) -> "Recipe":
        """Returns a version that follows on it."""
        plain = {"migrate": None, "back": None, "may_fail": bool(self.fails), "repairs": 0}
        return replace(self, number=number, parent=self.number, **plain | changed)

    def keeps(self, key: Any) -> bool:
        """Returns whether the steps leave a key's records."""
        return all(step.keeps(key) for _, step in self.steps if isinstance(step, Some))

    def sent(self, payload: bytes) -> bytes:
        """Returns a payload as the steps leave it."""
        for _, step in self.steps:
            payload = step(b"", payload) if isinstance(step, Mark) else payload
        return payload

    def fold(self, state: Any, value: int, *, chained: bool) -> tuple[Any, bytes | None]:
        """Returns the state after a record that the steps leave, None for none, and the payload of its result."""
        if not chained:
            after = (state or 0) + 1
            return after, self.sent(struct.pack("<q", after))
        found, result = self.chain.fold(state, value)
        payload = None if result is None else self.sent(json.dumps(result, separators=(",", ":")).encode())
        return None if found is None else tuple(found), payload


class Recipes(dict[int, Recipe]):
    """Versions by number; number 0 is the one that a query begins with."""

    def __init__(self) -> None:
        super().__init__({0: Recipe()})

    def shape_of(self, number: int) -> int:
        """Returns the shape of state under a version: the last that changed it."""
        while number and self[number].migrate is None:
            number = self[number].parent
        return number

    def repaired(self, shape: int) -> int:
        """Returns the shape that a state is taken for."""
        later = [recipe.number for recipe in self.values() if shape and recipe.repairs == shape]
        return self.repaired(max(later)) if later else shape

    def begun(self, numbers: Collection[int]) -> "Recipes":
        """Returns the versions without the repairs that are not among some: they had not begun."""
        found = Recipes()
        found.update({n: one for n, one in self.items() if not one.repairs or n in numbers})
        return found

    def without(self, refused: int, shape: int) -> int:
        """Returns the version under which a bin runs where one is refused: its parent, if its state can go there."""
        parent = self[refused].parent
        source, target = self.repaired(shape), self.shape_of(parent)
        while shape != target and source not in self._above(target):
            if self[source].back is None:
                return shape
            source = self.shape_of(self[source].parent)
        return parent

    def turned(self, state: dict[int, Any], source: int, target: int) -> dict[int, Any]:
        """Returns the state of a bin in another shape."""
        source = source if source == target else self.repaired(source)
        while source != target and source not in self._above(target):
            state = _mapped(state, self[source].back)
            source = self.shape_of(self[source].parent)
        for number in [n for n in reversed(self._above(target)) if n > source]:
            state = _mapped(state, self[number].migrate)
        return state

    def _above(self, shape: int) -> Sequence[int]:
        found = [shape]
        while found[-1]:
            found.append(self.shape_of(self[found[-1]].parent))
        return found


def _mapped(state: dict[int, Any], function: Any) -> dict[int, Any]:
    found = {key: function(value) for key, value in state.items()}
    return {key: tuple(value) for key, value in found.items() if value is not None}
