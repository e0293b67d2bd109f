"""Migration schedules as data: when which goal is commanded."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.experiment.description import Experiment
from impls.errors import UsageError
from impls.faults import POINTS
from impls.placement import goal as placement_goal
from impls.placement import initial as initial_assignment

Goal = Callable[[NDArray[np.int32]], NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class ScheduledCommand:
    """One command of a schedule: at `at_s` seconds of the load, lead-in included, `goal(current goal)` is asked for.

    A step that names a policy asks that policy for `workers` workers instead.
    """

    at_s: float
    label: str
    change: Goal | None = None
    policy: str = ""
    workers: int = 0

    def goal(
        self,
        current: NDArray[np.int32],
        rates: NDArray[np.float64] | None = None,
        sizes: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """Returns the goal from the current one and what was measured per bin."""
        if self.change is not None:
            return self.change(current)
        return placement_goal(self.policy, current, self.workers, rates=rates, sizes=sizes)


def megaphone_pattern(initial: NDArray[np.int32], workers: int) -> NDArray[np.int32]:
    """Returns the skewed assignment of Megaphone's standard migration (section 5): a quarter of all state moves.

    Every second bin of each worker in the first half goes to the corresponding worker in the other half.
    """
    half = workers // 2
    goal = initial.copy()
    for worker in range(half):
        mine = np.flatnonzero(initial == worker)
        goal[mine[::2]] = worker + half
    return goal


def plan_for(experiment: Experiment) -> list[ScheduledCommand]:  # noqa: PLR0911 - a return for each migration
    """Returns an experiment's schedule; raises UsageError when its migration is not possible."""
    third, lead = experiment.duration_s / 3, experiment.lead_in_s
    bins, workers = experiment.bins, experiment.workers
    if experiment.autoscale is not None:  # a policy decides while the query runs
        return []
    match experiment.migration:
        case "none":
            return []
        case "pattern":
            if workers < 2:
                raise UsageError("Megaphone's pattern needs at least 2 workers.")
            start = initial_assignment(bins, workers, experiment.policy)
            skewed = megaphone_pattern(start, workers)
            return [
                ScheduledCommand(lead + third, "a quarter of the state to the other half", lambda _: skewed),
                ScheduledCommand(lead + 2 * third, "back", lambda _: start),
            ]
        case "rescale":
            return [_rescale(experiment, lead + third, workers, experiment.workers_goal)]
        case "there-and-back":
            return _there_and_back(experiment)
        case "rebalance":
            return [
                ScheduledCommand(lead + third, "rebalance", policy=experiment.policy, workers=experiment.workers_goal)
            ]
        case path:
            return read_plan_file(Path(path), bins, max(workers, experiment.workers_goal))


def _rescale(experiment: Experiment, at_s: float, before: int, workers: int) -> ScheduledCommand:
    label = f"rescale {before} to {workers} workers"
    return ScheduledCommand(at_s, label, policy=experiment.policy, workers=workers)


def _there_and_back(experiment: Experiment) -> list[ScheduledCommand]:
    before, workers = experiment.workers, experiment.workers_goal
    if workers == before:
        raise UsageError("There and back needs another number of workers: give --workers FROM:TO.")
    at_s, third = experiment.lead_in_s, experiment.duration_s / 3
    return [
        _rescale(experiment, at_s + third, before, workers),
        _rescale(experiment, at_s + 2 * third, workers, before),
    ]


def read_plan_file(path: Path, bins: int, workers: int) -> list[ScheduledCommand]:
    """Reads a plan file: lines `SECONDS map W0 W1 …` or `SECONDS move BIN WORKER`; equal times form one command.

    Raises UsageError that names the line for anything else, times that go back, and bins or workers out of range.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The plan file {path} cannot be read: {error}.") from error
    entries: list[tuple[float, int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if words:
            entries.append(_entry(path, number, words, bins, workers))
            if len(entries) > 1 and entries[-1][0] < entries[-2][0]:
                raise UsageError(f"{path}, line {number}: the time {words[0]} lies before the one above it.")
    if not entries:
        raise UsageError(f"The plan file {path} asks for nothing.")
    return [
        ScheduledCommand(at, f"{path.name} at {at:g} s", _combined([words for _, _, words in group]))
        for at, group in groupby(entries, key=lambda entry: entry[0])
    ]


def _entry(path: Path, number: int, words: list[str], bins: int, workers: int) -> tuple[float, int, list[str]]:
    where = f"{path}, line {number}"
    try:
        at, verb, numbers = float(words[0]), words[1], [int(word) for word in words[2:]]
    except (ValueError, IndexError):
        raise UsageError(f"{where}: expected `SECONDS map W0 W1 …` or `SECONDS move BIN WORKER`.") from None
    if not 0 <= at < float("inf") or (verb, len(numbers)) not in {("map", bins), ("move", 2)}:
        raise UsageError(f"{where}: expected `SECONDS map` and {bins} workers, or `SECONDS move BIN WORKER`.")
    if verb == "move" and not 0 <= numbers[0] < bins:
        raise UsageError(f"{where}: bin {numbers[0]} does not exist, bins are 0 to {bins - 1}.")
    bad = [w for w in (numbers if verb == "map" else numbers[1:]) if not 0 <= w < workers]
    if bad:
        raise UsageError(f"{where}: worker {bad[0]} does not exist, workers are 0 to {workers - 1}.")
    return at, number, words[1:]


def _combined(changes: list[list[str]]) -> Goal:
    def goal(current: NDArray[np.int32]) -> NDArray[np.int32]:
        out = current.copy()
        for verb, *numbers in changes:
            if verb == "map":
                out = np.array(numbers, np.int32)
            else:
                out[int(numbers[0])] = int(numbers[1])
        return out

    return goal


STAGES = FIRST, SECOND = "first", "second"  # of a query of two, as its chain names them
VICTIMS = ("worker", "jvm", "driver", "broker")
DRIVER_POINTS = frozenset({"before-plan", "after-plan", "before-epoch-commit", "between-pull-and-drop"})
ANY_PHASE = frozenset(
    {"during-pull", "between-pull-and-drop", "during-recovery"}
)  # with a migration or a loss, or behind


class RunFault(NamedTuple):
    """The process that dies, the point at which, and the stage, of a query of two, that comes to the point."""

    victim: str
    point: str
    stage: str

    def check_stage(self, *, two: bool) -> None:
        """Raises UsageError where it cannot be a fault of its stage, in a query of one stage or two."""
        if self.stage != FIRST and not two:
            raise UsageError(f"The query has one stage: leave out @{self.stage}.")
        if self.stage != FIRST and self.victim == "worker" and self.point in DRIVER_POINTS:
            raise UsageError(
                f"At the driver's point {self.point} the worker that dies may be of either stage: "
                f"leave out @{self.stage}."
            )


def parse_fault(text: str) -> RunFault:
    """Reads victim@point, or victim@migrating for the middle of an epoch, and @second for that of a second stage.

    Raises:
        UsageError: it is anything else.
    """
    victim, _, rest = text.partition("@")
    point, _, stage = rest.partition("@")
    if victim not in VICTIMS or point not in {*POINTS, "migrating"} or stage not in {"", *STAGES}:
        points = ", ".join(("migrating", *POINTS))
        raise UsageError(
            f"A fault is VICTIM@POINT, a victim of {', '.join(VICTIMS)} and a point of {points}; of a query of two "
            "stages VICTIM@POINT@second is one in the second stage."
        )
    return RunFault(victim, "after-commit" if point == "migrating" else point, stage or FIRST)
