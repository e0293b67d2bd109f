"""The migrations of a run: when each was under way, and what it moved, from events and the epoch log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Migration", "Moved", "migrations_of", "moved"]

Line = dict[str, Any]


@dataclass(frozen=True)
class Migration:
    """One migration, from its command to the first epoch in which location equals goal.

    Attributes:
        id: of the command.
        label: what the command called it.
        begin_us: when it was commanded, wall clock.
        end_us: end of its last epoch; None if it never ended.
        epochs: numbers of the epochs that it lasted, in order.
    """

    id: str
    label: str
    begin_us: int
    end_us: int | None
    epochs: tuple[int, ...]


@dataclass(frozen=True)
class Moved:
    """What a migration moved.

    Attributes:
        bins, size: bins and bytes moved.
        duration_s: begin of the epoch that moved the first bin to the end of the one that moved the last; None if none.
        longest_pull_ms: longest time a worker pulled in one epoch; None if no worker pulled.
        relocated_ms: time that state was moved while the query was down; None if it was not.
    """

    bins: int
    size: int
    duration_s: float | None
    longest_pull_ms: float | None
    relocated_ms: float | None


def _first(events: Sequence[Line], kind: str) -> dict[str, Line]:
    out: dict[str, Line] = {}
    for event in events:
        if event["kind"] == kind:
            out.setdefault(str(event["id"]), event)
    return out


def migrations_of(events: Sequence[Line], epochs: Sequence[Line]) -> list[Migration]:
    """Returns the migrations in order of their begin.

    A migration begins with its command; where that is not known, with the epoch that its first event names. It ends
    with the last epoch of it. Events that a resumed run repeats count once.
    """
    commands, begins, ends = (_first(events, kind) for kind in ("command", "migration_begin", "migration_end"))
    by_number = {line["epoch"]: line for line in epochs}
    out = []
    for key in dict.fromkeys([*commands, *begins]):
        if key in begins:
            begin, end = begins[key], ends.get(key)
            known = by_number.get(begin["epoch"], {})
            at = min(commands.get(key, begin)["at_us"], begin["at_us"], known.get("begin_us", begin["at_us"]))
            numbers = _numbers(begin, end, by_number)
            last = max((by_number[n]["end_us"] for n in numbers), default=0)
            label = str(commands.get(key, begin).get("label", ""))
            out.append(Migration(key, label, at, max(end["at_us"], last) if end else None, numbers))
        else:  # commanded, but no epoch of it was finished
            out.append(Migration(key, str(commands[key].get("label", "")), commands[key]["at_us"], None, ()))
    return sorted(out, key=lambda migration: migration.begin_us)


def _numbers(begin: Line, end: Line | None, by_number: dict[int, Line]) -> tuple[int, ...]:
    last = end["epoch"] if end else max(by_number, default=-1)
    return tuple(n for n in sorted(by_number) if begin["epoch"] <= n <= last)


def moved(migration: Migration, events: Sequence[Line], epochs: Sequence[Line]) -> Moved:
    """Returns what a migration moved, inside epochs and between two runs of the query.

    The duration of a restart ends with the first epoch after it, when the bins serve again.
    """
    own = set(migration.epochs)
    moving = [line for line in epochs if line["epoch"] in own and line["moved_bins"]]
    offline = {e["epoch"]: e for e in events if e["kind"] == "relocated" and e["epoch"] in own}.values()
    after = {line["epoch"]: line["end_us"] for line in epochs}
    begins = [line["begin_us"] for line in moving] + [e["at_us"] - e["ms"] * 1e3 for e in offline]
    ends = [line["end_us"] for line in moving] + [after[e["epoch"]] for e in offline]
    return Moved(
        bins=sum(line["moved_bins"] for line in moving) + sum(e["bins"] for e in offline),
        size=sum(line["moved_bytes"] for line in moving) + sum(e["bytes"] for e in offline),
        duration_s=(max(ends) - min(begins)) / 1e6 if ends else None,
        longest_pull_ms=max((float(line["longest_pull_ms"]) for line in moving), default=None),
        relocated_ms=max((float(e["ms"]) for e in offline), default=None),
    )
