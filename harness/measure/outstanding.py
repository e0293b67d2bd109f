"""What a load still has to show: every commanded migration crossed by records, and steady state behind the last one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.measure.migrations import Migration, migrations_of, moved

__all__ = ["outstanding"]

Line = dict[str, Any]
_SURE = 10  # records per bin, over the share of bins that moved: that none of them is in a moved bin has chance e^-10
_CALM_EPOCHS, _CALM_FACTOR = 3, 2.0  # as `harness.measure.windows.settled_s`, with epochs in place of intervals


def outstanding(events: Sequence[Line], epochs: Sequence[Line], *, expected: int, bins: int, warm_us: int = 0) -> str:
    """Returns what the load still waits for, as the end of a sentence; empty once there is nothing.

    A migration counts as crossed when so many records were applied in epochs behind it that one of a moved bin is among
    them; one that moved no bin has none to cross it. Steady state is back when the median time of the last three epochs
    behind the last migration is at most twice that before the first command, and no record is queued.

    Args:
        events: the events of the run so far.
        epochs: its epochs so far, in order.
        expected: migrations that the experiment is to command.
        bins: number of bins.
        warm_us: wall clock time before which epochs are those of the lead-in.
    """
    if not expected:
        return ""
    commands = {str(event["id"]) for event in events if event["kind"] == "command"}
    if len(commands) < expected:
        return f"{len(commands)} of {expected} migrations were commanded"
    found = migrations_of(events, epochs)
    for migration in found:
        if migration.end_us is None:
            return f"the migration {migration.label or migration.id!r} had not ended"
        if not _crossed(migration, events, epochs, bins):
            return f"no record had crossed the migration {migration.label or migration.id!r}"
    return "" if _calm(found, epochs, warm_us) else "steady state was not back"


def _crossed(migration: Migration, events: Sequence[Line], epochs: Sequence[Line], bins: int) -> bool:
    what = moved(migration, events, epochs)
    if not what.bins:
        return True
    behind = sum(int(line["records"]) for line in epochs if line["epoch"] > migration.epochs[-1])
    return behind * min(what.bins, bins) >= _SURE * bins


def _calm(found: Sequence[Migration], epochs: Sequence[Line], warm_us: int) -> bool:
    first, last = found[0].begin_us, max(migration.end_us or 0 for migration in found)
    before = [line["ms"]["total"] for line in epochs if warm_us <= line["begin_us"] and line["end_us"] <= first]
    behind = [line for line in epochs if line["begin_us"] >= last][-_CALM_EPOCHS:]
    if not before or not behind:
        return bool(behind)
    times = [line["ms"]["total"] for line in behind]
    return bool(np.median(times) <= _CALM_FACTOR * np.median(before)) and not behind[-1]["queued"]
