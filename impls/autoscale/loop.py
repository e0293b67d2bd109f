"""From intervals to rescales: bounds, warm-up and cool-down around a policy. Pure: times are those of the intervals."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from impls.autoscale import Decision, Interval, Measured, Rescaled, memory_s, policy_of
from impls.errors import UsageError


def check_range(
    name: str, value: float, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> None:
    """Raises UsageError for a value that is not from low to high, or is an end that the range leaves out."""
    above = value > low if low_open else value >= low
    below = value < high if high_open else value <= high
    if not (above and below):  # true for NaN too
        begin, end = "above" if low_open else "at least", "below" if high_open else "at most"
        upper = "" if high == math.inf else f" and {end} {high:g}"
        raise UsageError(f"{name} must be {begin} {low:g}{upper}, not {value:g}.")


_PAST = 100  # rescales that are remembered
_INTERVALS, _INTERVALS_MOST = 1000, 100_000  # that are remembered: as many as a policy's seconds need
_BUSY_MOST = 2.0  # of an interval that a worker can have been of use, generously


@dataclass(frozen=True)
class AutoscaleSettings:
    """How a query is autoscaled.

    Attributes:
        policy: as `impls.autoscale.policy_of` reads it.
        least, most: bounds of the number of workers.
        interval_s: seconds over which is measured, at least 0.1; an interval lasts until an epoch has ended in it.
        cooldown_s: seconds from one rescale to the next, at least.
        warmup: intervals after the start and after each migration that are measured and not decided on.
        percentile: of the latency that decisions are told with, above 0 to 1.

    Raises:
        UsageError: one of them cannot be used.
    """

    policy: str
    least: int = 1
    most: int = 1
    interval_s: float = 10.0
    cooldown_s: float = 30.0
    warmup: int = 1
    percentile: float = 0.99

    def __post_init__(self) -> None:
        policy_of(self.policy)
        if not 1 <= self.least <= self.most:
            raise UsageError(f"The bounds of the workers are 1 <= min <= max, not min={self.least}, max={self.most}.")
        check_range("interval_s", self.interval_s, 0.1, math.inf, high_open=True)
        check_range("cooldown_s", self.cooldown_s, 0, math.inf, high_open=True)
        check_range("warmup", self.warmup, 0, 1000)
        check_range("percentile", self.percentile, 0, 1, low_open=True)
        if (back_s := memory_s(self.policy)) > _INTERVALS_MOST * self.interval_s:
            raise UsageError(
                f"The policy {self.policy} looks back {back_s:g} s, more than {_INTERVALS_MOST:,} intervals of "
                f"{self.interval_s:g} s: make interval_s longer."
            )


@dataclass(frozen=True)
class Decided:
    """What was decided at the end of an interval, in the bounds and times that there are.

    Attributes:
        at_s: the interval's end, wall clock.
        workers: those there are.
        wanted: those there are to be, None for no change.
        reason, numbers: of the policy and of the interval.
    """

    at_s: float
    workers: int
    wanted: int | None
    reason: str
    numbers: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary."""
        return {**vars(self)}

    def rescaled(self) -> Rescaled | None:
        """Returns the rescale, None where there is none."""
        rate = self.numbers.get("offered_rate", 0.0)
        return None if self.wanted is None else Rescaled(self.at_s, self.workers, self.wanted, rate)


class Autoscaler:
    """decide() at the end of every interval; moved() when a migration was under way since.

    Warm-up begins with the start and with each migration. Cool-down begins with a rescale decided, those of an earlier
    start of the driver included (`past`): its wall clock outlives the process. What a policy has measured does not:
    after a start it has to measure anew, so that a stabilisation window is never cut short.

    Args:
        settings: bounds and times.
        past: the rescales decided before.
        moves: returns whether a rescale to so many workers would move a bin. A placement may leave workers without
            bins, which nobody counts: then to ask again for what there is changes nothing.
    """

    def __init__(
        self,
        settings: AutoscaleSettings,
        past: Iterable[Rescaled] = (),
        moves: Callable[[int], bool] = lambda _workers: True,
    ):
        self.settings, self._policy, self._moves = settings, policy_of(settings.policy), moves
        self._past, self._memory_s = deque(past, _PAST), memory_s(settings.policy)
        self._intervals: deque[Interval] = deque()
        self._cold = settings.warmup

    def moved(self) -> None:
        """Takes in that a migration was under way: the intervals behind it are those of a warm-up again."""
        self._cold = self.settings.warmup

    def decide(self, interval: Interval) -> Decided:
        """Returns what is decided at the end of an interval."""
        at = interval.end_s
        if interval.seconds <= 0 or max(interval.useful_s) > _BUSY_MOST * interval.seconds:
            reason = "This interval is shorter than what was done in it: a clock was set, and nothing follows from it."
            return Decided(at, interval.workers, None, reason, {})
        numbers = interval.numbers()
        if self._cold:
            self._cold -= 1
            return Decided(at, interval.workers, None, "This interval belongs to the warm-up.", numbers)
        self._remember(interval)
        decision = self._bounded(self._policy(Measured(tuple(self._intervals), tuple(self._past))), interval.workers)
        numbers |= decision.numbers
        rest = self._past[-1].at_s + self.settings.cooldown_s - at if self._past else 0.0
        if decision.workers is not None and rest > 0:
            reason = f"{decision.reason} The cool-down lasts another {rest:.1f} s."
            return Decided(at, interval.workers, None, reason, numbers)
        if decision.workers is not None and not self._moves(decision.workers):
            reason = f"{decision.reason} For {decision.workers} workers no bin would move."
            return Decided(at, interval.workers, None, reason, numbers)
        decided = Decided(at, interval.workers, decision.workers, decision.reason, numbers)
        if (rescaled := decided.rescaled()) is not None:
            self._past.append(rescaled)
        return decided

    def _remember(self, interval: Interval) -> None:
        """Takes in an interval, and forgets those that no policy looks back to."""
        own, since = self._intervals, interval.end_s - self._memory_s
        own.append(interval)
        while len(own) > _INTERVALS and (own[1].begin_s <= since or len(own) > _INTERVALS_MOST):
            own.popleft()
        if self._past and self._past[-1].at_s > interval.end_s:  # the wall clock was set back between two starts
            self._past[-1] = replace(self._past[-1], at_s=interval.end_s)

    def _bounded(self, decision: Decision, workers: int) -> Decision:
        """Returns a decision within the bounds; where there are workers beyond them, that they come back."""
        low, high = self.settings.least, self.settings.most
        wanted = workers if decision.workers is None else decision.workers
        inside = min(max(wanted, low), high)
        if inside == wanted:
            return decision
        bound = f"at least {low}" if inside == low else f"at most {high}"
        return replace(
            decision,
            workers=None if inside == workers else inside,
            reason=f"{decision.reason} There are to be {bound}, not {wanted}.",
        )
