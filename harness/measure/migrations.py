"""The migrations of a run: when each was under way, and what it moved, from events and the epoch log.

What a load still has to show: every commanded migration crossed by records, and steady state behind the last one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from harness.measure.cells import pace_ms

Line = dict[str, Any]
SURE = 10  # records per bin, over the share of bins that moved: that none of them is in a moved bin has chance e^-10
_CALM_EPOCHS, _CALM_FACTOR = 3, 2.0  # as `harness.measure.windows.settled_s`, with epochs in place of intervals


@dataclass(frozen=True)
class Migration:
    """One migration, from its command to the first epoch in which location equals goal.

    Attributes:
        id: of the command.
        label: what the command called it.
        begin_us: when it was commanded, wall clock.
        end_us: end of its last epoch; None if it never ended.
        epochs: numbers of the epochs that it lasted, in order.
        moves: what its goal moves and the least that would do, see `impls.placement.movement`; empty where not known.
    """

    id: str
    label: str
    begin_us: int
    end_us: int | None
    epochs: tuple[int, ...]
    moves: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Moved:
    """What a migration moved.

    Attributes:
        bins, size: bins and bytes moved; None if no epoch of the migration is known, so that nothing is known of them.
        begin_us: begin of the epoch that moved the first bin, or end of the query if it was stopped for that.
        end_us: end of the epoch that moved the last; both None if none.
        longest_pull_ms: longest time a worker pulled in one epoch; None if no worker pulled.
    """

    bins: int | None
    size: int | None
    begin_us: int | None
    end_us: int | None
    longest_pull_ms: float | None

    @property
    def duration_s(self) -> float | None:
        """From the begin to the end."""
        return None if self.begin_us is None or self.end_us is None else (self.end_us - self.begin_us) / 1e6

    def __add__(self, other: "Moved") -> "Moved":
        """Returns what two stages of a query have moved; a sum of which one part is not known is None."""
        return Moved(
            bins=_sum(self.bins, other.bins),
            size=_sum(self.size, other.size),
            begin_us=min(_known(self.begin_us, other.begin_us), default=None),
            end_us=max(_known(self.end_us, other.end_us), default=None),
            longest_pull_ms=max(_known(self.longest_pull_ms, other.longest_pull_ms), default=None),
        )


_Number = TypeVar("_Number", int, float)


def _known(*values: _Number | None) -> list[_Number]:
    return [value for value in values if value is not None]


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


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
            until = max(end["at_us"], last) if end else None
            out.append(Migration(key, label, at, until, numbers, commands.get(key, {}).get("moves", {})))
        else:  # commanded, but no epoch of it was finished
            out.append(Migration(key, str(commands[key].get("label", "")), commands[key]["at_us"], None, ()))
    return sorted(out, key=lambda migration: migration.begin_us)


def _numbers(begin: Line, end: Line | None, by_number: dict[int, Line]) -> tuple[int, ...]:
    last = end["epoch"] if end else max(by_number, default=-1)
    return tuple(n for n in sorted(by_number) if begin["epoch"] <= n <= last)


def of_stages(first: Sequence[Migration], second: Sequence[Migration]) -> list[tuple[Migration, list[Migration]]]:
    """Returns each migration of a first stage with those of the second one that the same command began.

    The migration returned ends when the last of them has ended. A command goes to both stages at once, under one label.
    So a migration of the second stage belongs to the nearest in time of the first one's with its label.
    """
    parts: list[list[Migration]] = [[] for _ in first]
    for one in second if first else ():
        alike = [at for at, other in enumerate(first) if other.label == one.label] or range(len(first))
        parts[min(alike, key=lambda at: abs(first[at].begin_us - one.begin_us))].append(one)
    return [(_until(one, found), found) for one, found in zip(first, parts, strict=True)]


def _until(one: Migration, others: Sequence[Migration]) -> Migration:
    parts = (one, *others)
    ends = _known(*(part.end_us for part in parts))
    moves = {name: sum(part.moves.get(name, 0) for part in parts) for name in one.moves}
    return replace(one, end_us=max(ends) if len(ends) == len(parts) else None, moves=moves)


def moved(migration: Migration, events: Sequence[Line], epochs: Sequence[Line]) -> Moved:
    """Returns what a migration moved; one that stopped the query lasts until its bins serve again."""
    mine = set(migration.epochs)
    moving = [line for line in epochs if line["epoch"] in mine and line["moved_bins"]]
    until = math.inf if migration.end_us is None else migration.end_us
    stops = [e["at_us"] for e in events if e["kind"] == "query_stop" and migration.begin_us <= e["at_us"] <= until]
    begins = [*stops, *(line["begin_us"] for line in moving)]
    return Moved(
        bins=sum(line["moved_bins"] for line in moving) if mine else None,
        size=sum(line["moved_bytes"] for line in moving) if mine else None,
        begin_us=min(begins) if moving else None,
        end_us=max((line["end_us"] for line in moving), default=None),
        longest_pull_ms=max((float(line["longest_pull_ms"]) for line in moving), default=0.0) or None,
    )


def outcome(migration: Migration, what: Moved, events: Sequence[Line]) -> str | None:
    """Returns in a sentence what became of a migration that did not just move its bins; None for one that did.

    Args:
        migration: one of `migrations_of`.
        what: what it moved.
        events: the events of its run.
    """
    begin, end = (_first(events, kind).get(migration.id) for kind in ("migration_begin", "migration_end"))
    so_far = "an unknown number of bins" if what.bins is None else f"{what.bins:,} bins"
    if begin is None:
        return "It was commanded and did not begin before the run ended."
    if end is None or migration.end_us is None:
        return f"It had not ended when the run did: it had moved {so_far}."
    if end.get("superseded"):
        return f"The next command took its place: it had moved {so_far}."
    return None if what.bins else _still(begin, what)


def _still(begin: Line, what: Moved) -> str:
    """Returns why a migration ended without a move of its own."""
    if what.bins is None:
        return "It ended, and no epoch of it is in the epoch log."
    if "bins" not in begin:  # Spark's own query, which knows of none
        return "The query was restarted, and no bin moved."
    if begin["bins"] == 0:
        return "Every bin was where the command wanted it: the command was fulfilled without a move."
    return "Its bins arrived without a move of its own: moves that were under way when it was commanded did it."


def outstanding(
    events: Sequence[Line], epochs: Sequence[Line], *, expected: int, bins: int, warm_us: int = 0, calm: bool = True
) -> str:
    """Returns what the load still waits for, as the end of a sentence; empty once there is nothing.

    A migration counts as crossed when so many records were applied in epochs behind it that one of a moved bin is among
    them; one that moved no bin has none to cross it. Steady state is back when the median time of the last three epochs
    behind the last migration (in real time their median latency) is at most twice that before the first command, and no
    record is queued.

    Args:
        events: the events of the run so far.
        epochs: its epochs so far, in order.
        expected: migrations that the experiment is to command.
        bins: number of bins.
        warm_us: wall clock time before which epochs are those of the lead-in.
        calm: whether steady state is waited for, which has no meaning where the load itself changes.
    """
    if not expected:
        return ""
    commands = {str(event["id"]) for event in events if event["kind"] == "command"}
    if len(commands) < expected:
        return f"{len(commands)} of {expected} migrations were commanded"
    migrations = migrations_of(events, epochs)
    for migration in migrations:
        if migration.end_us is None:
            return f"the migration {migration.label or migration.id!r} had not ended"
        if not _crossed(migration, events, epochs, bins):
            return f"no record had crossed the migration {migration.label or migration.id!r}"
    return "" if not calm or _calm(migrations, epochs, warm_us) else "steady state was not back"


def passed_over(events: Sequence[Line], epochs: Sequence[Line]) -> str:
    """Returns which migration of a query no record has come behind, or has not ended, as the end of a sentence.

    That is asked of a second stage, which may have few keys and records: a record of a moved bin may never come.
    """
    for migration in migrations_of(events, epochs):
        name = migration.label or repr(migration.id)
        if migration.end_us is None:
            return f"its migration {name} had not ended"
        last = max(migration.epochs, default=-1)
        if not any(line["records"] for line in epochs if line["epoch"] > last):
            return f"no record had come behind its migration {name}"
    return ""


def _crossed(migration: Migration, events: Sequence[Line], epochs: Sequence[Line], bins: int) -> bool:
    what = moved(migration, events, epochs)
    if not what.bins:
        return True
    behind = sum(int(line["records"]) for line in epochs if line["epoch"] > migration.epochs[-1])
    return behind * min(what.bins, bins) >= SURE * bins


def _calm(found: Sequence[Migration], epochs: Sequence[Line], warm_us: int) -> bool:
    first, last = found[0].begin_us, max(migration.end_us or 0 for migration in found)
    paced = [(line, pace) for line in epochs if (pace := pace_ms(line)) is not None]
    before = [pace for line, pace in paced if warm_us <= line["begin_us"] and line["end_us"] <= first]
    behind = [(line, pace) for line, pace in paced if line["begin_us"] >= last][-_CALM_EPOCHS:]
    if not before or not behind:
        return bool(behind)
    calm = np.median([pace for _, pace in behind]) <= _CALM_FACTOR * np.median(before)
    return bool(calm) and not behind[-1][0]["queued"]
