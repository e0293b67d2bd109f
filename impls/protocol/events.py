"""What the controller reports about a migration: that it began, and that it is done."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Event", "MigrationBegun", "MigrationDone", "event_from_json"]


@dataclass(frozen=True, slots=True)
class MigrationBegun:
    """The first epoch of a migration was planned; `bins` are not at their goal."""

    id: str
    label: str
    epoch: int
    bins: int

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of events.jsonl."""
        return {"kind": "migration_begin", "id": self.id, "label": self.label, "epoch": self.epoch, "bins": self.bins}


@dataclass(frozen=True, slots=True)
class MigrationDone:
    """All bins are at their goal and their queues are empty; or a newer command has replaced the migration."""

    id: str
    epoch: int
    superseded: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of events.jsonl."""
        return {"kind": "migration_end", "id": self.id, "epoch": self.epoch, "superseded": self.superseded}


Event = MigrationBegun | MigrationDone


def event_from_json(data: dict[str, Any]) -> Event:
    """Reads what an event's `to_json` wrote."""
    fields = {name: value for name, value in data.items() if name != "kind"}
    return MigrationBegun(**fields) if data["kind"] == "migration_begin" else MigrationDone(**fields)
