"""What a load still waits for at its end, and how much of it is due."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.experiment.description import Run
from harness.measure.migrations import SURE, outstanding
from harness.run.application import Application
from harness.run.check import expected_migrations
from harness.run.recorder import Recorder

__all__ = ["due_of", "unmet", "unscheduled"]


def unmet(run: Run, load: Mapping[str, Any], query: Application, recorder: Recorder) -> str:
    """Returns what the load still waits for, as the end of a sentence.

    A query that is autoscaled is so no more: the rescales there were are to be crossed by records, and no other begins.
    """
    query.end_autoscaling()
    experiment, (events, epochs) = run.experiment, recorder.story()
    if experiment.autoscale is not None:
        commands = {event["id"] for event in events if event["kind"] == "command"}
        left = outstanding(events, epochs, expected=len(commands), bins=experiment.bins, calm=False)
        return left or unscheduled(events, load, experiment.bins, now_us())
    warm_us = load["start_us"] + round(experiment.lead_in_s * 1e6)
    return outstanding(events, epochs, expected=expected_migrations(run), bins=experiment.bins, warm_us=warm_us)


def unscheduled(events: Sequence[Mapping[str, Any]], load: Mapping[str, Any], bins: int, at_us: int) -> str:
    """Returns which migration no record can have crossed that was due behind its end, as the end of a sentence.

    A query that was overloaded applies records behind a migration that were due before its end.

    Args:
        events: of the run so far, all migrations ended.
        load: its load.json.
        bins: number of bins.
        at_us: wall clock.
    """
    due = _due_at(load, at_us)
    moves = {event["id"]: event["moves"]["bins"] for event in events if event["kind"] == "command"}
    for event in (event for event in events if event["kind"] == "migration_end"):
        moved = min(moves.get(event["id"], 0), bins)
        if moved and (due - _due_at(load, event["at_us"])) * moved < SURE * bins:
            return f"no record was due behind the migration {event['id']!r}"
    return ""


def due_of(load: dict[str, Any]) -> Callable[[], int] | None:
    """Returns what counts the records that are due by now; None where not every record becomes one of the query's."""
    if "nexmark" in load or not load.get("due_by_second"):
        return None
    return lambda: _due_at(load, now_us())


def _due_at(load: Mapping[str, Any], at_us: int) -> int:
    by_second = load["due_by_second"]  # it grows when the load goes on
    return int(np.interp((at_us - load["start_us"]) / 1e6, range(len(by_second) + 1), [0, *by_second]))
