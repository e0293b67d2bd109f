"""Commands, durable requests to reach a goal; and what the controller reports of migrations and changes."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from impls.protocol.arrays import array_of, text_of

Kind = Literal["rescale", "rebalance"]


@dataclass(slots=True)
class Identity:
    """An id for the command that is made next, and whether one was made."""

    id: str
    used: bool = False


_IDENTITY: ContextVar[Identity | None] = ContextVar("identity", default=None)


@contextmanager
def identified(id_: str) -> Iterator[Identity]:
    """Gives an id to the command that this thread makes inside: whoever asked for it can find it in the journal."""
    identity = Identity(id_)
    token = _IDENTITY.set(identity)
    try:
        yield identity
    finally:
        _IDENTITY.reset(token)


def new_id() -> str:
    """Returns an id that no other request has, or that of `identified`."""
    identity = _IDENTITY.get() or Identity(uuid.uuid4().hex[:12])
    identity.used = True
    return identity.id


@dataclass(frozen=True, slots=True)
class Command:
    """A request to reach `goal` (int32, one worker per bin) from epoch `from_epoch` on.

    On a cluster workers that are new or own nothing are seated on `hosts` from then on; an empty tuple allows all.
    """

    id: str
    kind: Kind
    goal: NDArray[np.int32]
    label: str
    from_epoch: int
    hosts: tuple[str, ...] = ()

    @classmethod
    def new(
        cls, kind: Kind, goal: NDArray[np.int32], label: str, *, from_epoch: int, hosts: tuple[str, ...] = ()
    ) -> "Command":
        """Returns a command with an identity of its own, or with that of `identified`."""
        return cls(new_id(), kind, goal.astype(np.int32), label, from_epoch, hosts)

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary; the goal is base64 of little-endian uint16."""
        goal = text_of(self.goal, "<u2")
        out = {"id": self.id, "kind": self.kind, "goal": goal, "label": self.label, "from_epoch": self.from_epoch}
        return {**out, "hosts": list(self.hosts)} if self.hosts else out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Command":
        """Reads what `to_json` wrote."""
        goal = array_of(data["goal"], "<u2").astype(np.int32)
        return cls(data["id"], data["kind"], goal, data["label"], data["from_epoch"], tuple(data.get("hosts", ())))


@dataclass(frozen=True, slots=True)
class _EventLine:
    """A line of events.jsonl: its `kind`, then the fields."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of events.jsonl."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class MigrationBegun(_EventLine):
    """The first epoch of a migration was planned; `bins` are not at their goal."""

    kind = "migration_begin"
    id: str
    label: str
    epoch: int
    bins: int


@dataclass(frozen=True, slots=True)
class MigrationDone(_EventLine):
    """All bins are at their goal and their queues are empty; or a newer command has replaced the migration."""

    kind = "migration_end"
    id: str
    epoch: int
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class ChangeBegun(_EventLine):
    """The first epoch that tries a version of the pipeline was planned."""

    kind = "change_begin"
    id: str
    label: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class ChangeDone(_EventLine):
    """All bins run under the version, and their state has its shape."""

    kind = "change_end"
    id: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class ChangeRefused(_EventLine):
    """The version failed: it was never taken over, or the bins that had it were `rolled_back`."""

    kind = "change_refused"
    id: str
    epoch: int
    version: int
    why: str
    rolled_back: bool = False


Event = MigrationBegun | MigrationDone | ChangeBegun | ChangeDone | ChangeRefused
_EVENTS: dict[str, type[Event]] = {event.kind: event for event in get_args(Event)}


def event_from_json(data: dict[str, Any]) -> Event:
    """Reads what an event's `to_json` wrote."""
    return _EVENTS[data["kind"]](**{name: value for name, value in data.items() if name != "kind"})
