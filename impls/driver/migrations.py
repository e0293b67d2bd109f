"""The migrations of a query, folded from the lines of its log: cause, phases, bytes, latency, and how each ended. Pure.

A line is a JSON object with a `kind`:

| kind | written when | fields besides `id` |
|---|---|---|
| command | a command is durable | cause, why, label, at_us, workers (before, after), bins, bytes, p99_ms |
| begin | its first epoch has ended | label, epoch, at_us, bins |
| epoch | an epoch of it has ended | epoch, begin_us, end_us, bins, bytes, restored, max_ms |
| end | it is done, or a newer command replaces it | at_us, how |
| loss | a worker was rebuilt, or its bins came from the checkpoint | that of a record, see `MigrationRecord` |
| record | the log was shortened | that of a record |

A driver that dies may write a line once more: the last one of a kind, and of an epoch, holds.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Cause = Literal["command", "policy", "loss"]
Outcome = Literal["waiting", "under way", "done", "replaced"]
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    """A migration of a query, or the rebuilding of a worker that was lost.

    Attributes:
        id: of the command; of a loss the worker, the one that it gave no bins to, and the epoch.
        cause: a command of a user's, a policy's, or the loss of a worker; why: the policy's reason, or what was lost.
        label: what was asked for.
        outcome: waiting for its first epoch, under way, done, or replaced by a newer command.
        workers_before, workers_after: numbers of workers, None where they are not known.
        planned_bins, planned_bytes: that were to move.
        asked_us, begin_us, end_us: wall clock of the command, its first epoch's begin and its end, µs; None before.
        epochs: that it has had.
        moved_bins, moved_bytes, restored_bins: pulled; shipped for them; of them from the checkpoint.
        waiting_s: from the command to its first epoch; moving_s: from there to the end of the last epoch that pulled;
            draining_s: from there to its end, until which queues are emptied. None where it has not come so far.
        before_p99_ms: the query's p99 latency in the 5 seconds before the command; highest_ms: the highest latency
            while it ran. None without a column of the scheduled time.
    """

    id: str
    cause: Cause
    label: str
    outcome: Outcome
    why: str = ""
    workers_before: int | None = None
    workers_after: int | None = None
    planned_bins: int = 0
    planned_bytes: int = 0
    asked_us: int | None = None
    begin_us: int | None = None
    end_us: int | None = None
    epochs: int = 0
    moved_bins: int = 0
    moved_bytes: int = 0
    restored_bins: int = 0
    waiting_s: float | None = None
    moving_s: float | None = None
    draining_s: float | None = None
    before_p99_ms: float | None = None
    highest_ms: float | None = None

    @property
    def seconds(self) -> float | None:
        """From its begin to its end."""
        return _seconds(self.begin_us, self.end_us)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return asdict(self)


_FIELDS = {field.name for field in fields(MigrationRecord)}


def migrations_of(lines: Iterable[Line]) -> list[MigrationRecord]:
    """Returns the migrations that a log's lines tell of, in their order."""
    by_id: dict[str, list[Line]] = {}
    for line in lines:
        by_id.setdefault(line["id"], []).append(line)
    return [_record(id_, own) for id_, own in by_id.items()]


def under_way(lines: Iterable[Line]) -> str | None:
    """Returns the id of the migration that has begun last and has not ended, None for none."""
    current = None
    for line in lines:
        if line["kind"] == "begin":
            current = line["id"]
        elif line["kind"] == "end" and line["id"] == current:
            current = None
    return current


def _record(id_: str, lines: Iterable[Line]) -> MigrationRecord:
    last, epochs = dict[str, Line](), dict[int, Line]()
    for line in lines:
        last[line["kind"]] = line
        if line["kind"] == "epoch":
            epochs[line["epoch"]] = line
    if (whole := last.get("record") or last.get("loss")) is not None:
        return MigrationRecord(**{name: value for name, value in whole.items() if name in _FIELDS})
    command, begin, end = (last.get(kind, {}) for kind in ("command", "begin", "end"))
    return MigrationRecord(
        id=id_,
        cause=command.get("cause", "command"),
        why=command.get("why", ""),
        label=command.get("label", begin.get("label", "")),
        outcome=end.get("how", "under way" if begin else "waiting"),
        planned_bins=command.get("bins", begin.get("bins", 0)),
        planned_bytes=command.get("bytes", 0),
        before_p99_ms=command.get("p99_ms"),
        **_workers(command),
        **_times(command.get("at_us"), begin.get("at_us"), end.get("at_us"), epochs.values()),
        **_sums(epochs.values()),
    )


def _workers(command: Line) -> dict[str, Any]:
    return dict(zip(("workers_before", "workers_after"), command.get("workers", (None, None)), strict=True))


def _times(asked: int | None, begin: int | None, end: int | None, epochs: Iterable[Line]) -> dict[str, Any]:
    moved = max((one["end_us"] for one in epochs if one["bins"]), default=begin)
    phases = {
        "waiting_s": _seconds(asked, begin),
        "moving_s": None if end is None else _seconds(begin, moved),
        "draining_s": _seconds(moved, end),
    }
    return {"asked_us": asked, "begin_us": begin, "end_us": end, **phases}


def _sums(epochs: Collection[Line]) -> dict[str, Any]:
    highest = [one["max_ms"] for one in epochs if one["max_ms"] is not None]
    return {
        "epochs": len(epochs),
        "moved_bins": sum(one["bins"] for one in epochs),
        "moved_bytes": sum(one["bytes"] for one in epochs),
        "restored_bins": sum(one["restored"] for one in epochs),
        "highest_ms": max(highest, default=None),
    }


def _seconds(begin_us: int | None, end_us: int | None) -> float | None:
    return None if begin_us is None or end_us is None else round(max(0, end_us - begin_us) / 1e6, 3)
