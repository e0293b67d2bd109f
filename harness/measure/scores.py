"""How well a query was scaled: seconds above the objective, worker-seconds, rescales, oscillations, time to the right.

Pure: of lines of a run's files, or of a simulation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

_SAME_LOAD = 0.1
_TOLERANCE = 0.1
_BACKLOG_S = 2.0

Line = Mapping[str, Any]


class Changed(NamedTuple):
    """The number of workers from a time on, in seconds since the load's begin."""

    at_s: float
    workers: int


@dataclass(frozen=True)
class Needed:
    """How many workers a load needs.

    Attributes:
        rate: records/s that are due at a time, in seconds since the load's begin.
        each: records/s that a worker does at the utilisation wanted.
        least, most: bounds of the number of workers.
    """

    rate: Callable[[float], float]
    each: float
    least: int
    most: int

    def at(self, at_s: float) -> int:
        """Returns the fewest workers that do what is due at a time."""
        return min(max(math.ceil(self.rate(at_s) / self.each - 1e-9), self.least), self.most)

    def is_right(self, workers: int, at_s: float) -> bool:
        """Returns whether so many workers are neither too few nor too many, within a tolerance of 10 %."""
        need = self.rate(at_s) / self.each
        fewest, most = need / (1 + _TOLERANCE), math.ceil(need / (1 - _TOLERANCE) - 1e-9)
        return min(fewest, self.most) <= workers <= max(min(most, self.most), self.least)


@dataclass(frozen=True)
class Score:
    """How well a query was scaled while the load lasted.

    Attributes:
        above_s: seconds of scheduled time whose 99th percentile of latency was above the objective.
        worker_s: seconds that workers were there, summed over them; those of a stopped query count.
        rescales: decided by the policy.
        oscillations: rescales that undid the one before while the load was the same.
        right_s: seconds from the last step of the load until the number of workers was right and stayed so; None where
            it never was, or the load has no step.
        rescales_to_right: how many rescales that took.
    """

    above_s: float
    worker_s: float
    rescales: int
    oscillations: int
    right_s: float | None = None
    rescales_to_right: int | None = None

    def to_json(self) -> dict[str, float | None]:
        """Returns the numbers by name, rounded to milliseconds."""
        return {name: None if value is None else round(value, 3) for name, value in asdict(self).items()}


def oscillations(rescales: Sequence[Line]) -> int:
    """Returns how many rescales undid the one before while the offered rate differed by 10 % at most.

    A rescale for the sake of a backlog, of 2 s of the offered rate or more, is not undone when the backlog is gone.

    Args:
        rescales: decisions with workers, wanted and numbers.offered_rate, in order.
    """

    def undone(first: Line, then: Line) -> bool:
        before, after = (float(one["numbers"]["offered_rate"]) for one in (first, then))
        if any(
            one["numbers"].get("backlog", 0.0) >= _BACKLOG_S * rate for one, rate in ((first, before), (then, after))
        ):
            return False
        back = (first["wanted"] - first["workers"]) * (then["wanted"] - then["workers"]) < 0
        return back and abs(after - before) <= _SAME_LOAD * max(before, after)

    return sum(undone(first, then) for first, then in pairwise(rescales))


def rescales_of(events: Sequence[Line]) -> list[Line]:
    """Returns the decisions of a policy that rescaled, in order."""
    return [event for event in events if event["kind"] == "autoscale" and event.get("wanted") is not None]


def steps_of(epochs: Sequence[Line], start_us: int) -> list[Changed]:
    """Returns how many workers there were from when on: one counts when an epoch without a migration begins."""
    out: list[Changed] = []
    for line in epochs:
        if not line["migrating"] and (not out or out[-1].workers != line["workers"]):
            out.append(Changed((line["begin_us"] - start_us) / 1e6, int(line["workers"])))
    return out


def worker_seconds(epochs: Sequence[Line], start_us: int, begin_s: float, end_s: float) -> float:
    """Returns worker-seconds between two times since the load's begin; an epoch lasts from the end of the one before.

    While a migration runs, workers that come and those that go count.
    """
    begin_us, end_us = start_us + begin_s * 1e6, start_us + end_s * 1e6
    total, before = 0.0, begin_us
    for line in epochs:
        at = min(line["end_us"], end_us)
        if at > before:
            total += (at - before) * line["workers"]
            before = at
    return total / 1e6


def right_after(steps: Sequence[Changed], needed: Needed, step_s: float, end_s: float) -> float | None:
    """Returns the time from a step of the load until the number of workers was right and stayed so, None if never."""
    edges = [*(step.at_s for step in steps[1:]), end_s]
    since: float | None = None
    for step, until in zip(steps, edges, strict=True):
        if until <= step_s:
            continue
        if not needed.is_right(step.workers, end_s):
            since = None
        elif since is None:
            since = max(step.at_s, step_s)
    return None if since is None else since - step_s
