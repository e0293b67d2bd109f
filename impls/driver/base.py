"""What is durable of a query's epochs: the base, and the journals behind it.

The base is what the controller knew at the end of an epoch, so that earlier entries of the journals can go.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impls.driver.journal import read_journal, replace_bytes
from impls.errors import ADVICE, StateError, UsageError
from impls.protocol.controller import Controller
from impls.protocol.events import Command
from impls.protocol.plan import WrittenPlan
from impls.protocol.versions import Change
from impls.protocol.view import Observation

BASE = "base.json"
FORMAT = 2


@dataclass(frozen=True)
class Base:
    """The controller at the end of `epoch`, as `Controller.to_json` gives it; all fields are JSON values."""

    query: str
    epoch: int
    controller: dict[str, Any]

    def keeps(self, journal: str, entry: dict[str, Any]) -> bool:
        """Returns whether an entry of the journal `plan`, `observed` or `commands` is not contained in the base.

        The plan of the base's own epoch is kept: Spark may not have committed that epoch, and runs it again.
        """
        if journal == "plan":
            return bool(entry["epoch"] >= self.epoch)
        if journal == "observed":
            return bool(entry["epoch"] > self.epoch)
        changes = self.controller.get("changing", {"pending": []})
        waiting = {command["id"] for command in [*self.controller["pending"], *changes["pending"]]}
        return entry["from_epoch"] > self.epoch and entry["id"] not in waiting


def write_base(folder: Path, base: Base, *, fsync: bool = False) -> None:
    """Replaces the base in a folder; raises StateError when it cannot be written."""
    fields = {"query": base.query, "epoch": base.epoch, "controller": base.controller}
    data = json.dumps({"format": FORMAT, "crc32": _checksum(base), **fields}, separators=(",", ":"))
    replace_bytes(folder / BASE, data.encode(), fsync=fsync)


def read_base(folder: Path, query: str) -> Base | None:
    """Returns the base in a folder, None if there is none yet.

    Raises UsageError that names the file when it is damaged, of another format or of another query.
    """
    path = folder / BASE
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_bytes())
        version = data["format"]
        base = Base(data["query"], data["epoch"], data["controller"])
        whole = data["crc32"] == _checksum(base)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The base {path} is damaged: {ADVICE}.") from error
    if version != FORMAT:
        raise UsageError(f"The base {path} has format {version}; this version reads format {FORMAT}.")
    if not whole:
        raise UsageError(f"The base {path} is damaged (its checksum does not match): {ADVICE}.")
    if base.query != query:
        raise UsageError(f"The base {path} belongs to another query: {ADVICE}.")
    return base


def _checksum(base: Base) -> int:
    return zlib.crc32(json.dumps([base.query, base.epoch, base.controller], separators=(",", ":")).encode())


def entries_of(own: Path, name: str, base: Base | None) -> list[dict[str, Any]]:
    """Returns the entries of a journal that a base does not contain; raises UsageError when it is damaged."""
    entries = read_journal(own / f"{name}.log")
    return entries if base is None else [entry for entry in entries if base.keeps(name, entry)]


@dataclass(frozen=True)
class Journals:
    """The base, and what the journals have behind it, in the order of the epochs."""

    own: Path
    base: Base | None
    plans: list[WrittenPlan]
    observed: list[Observation]
    commands: list[Command | Change]

    @classmethod
    def read(cls, own: Path, base: Base | None) -> "Journals":
        """Reads the journals in a folder; raises UsageError when one is damaged.

        Where a query runs meanwhile, what is read has the plan of each epoch observed, and the commands of each plan.
        """
        observed = [Observation.from_json(entry) for entry in entries_of(own, "observed", base)]
        plans = [WrittenPlan.from_json(entry) for entry in entries_of(own, "plan", base)]
        commands = [_command_of(entry) for entry in entries_of(own, "commands", base)]
        return cls(own, base, plans, observed, commands)

    def replay(self, controller: Controller, until: int | None = None) -> None:
        """Brings a new controller to the end of an epoch, by default of the last one.

        Raises UsageError when the journals do not fit together.
        """
        observed = [seen for seen in self.observed if until is None or seen.epoch <= until]
        try:
            if self.base is not None:
                controller.restore(self.base.controller)
            controller.replay(self.plans, observed, self.commands)
        except (StateError, KeyError, ValueError) as error:
            raise UsageError(f"The journals in {self.own} do not fit together ({error}): {ADVICE}.") from error


def _command_of(entry: dict[str, Any]) -> Command | Change:
    return Change.from_json(entry) if entry["kind"] == "change" else Command.from_json(entry)
