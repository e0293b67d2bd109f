"""Autoscaling policies: how many workers a query needs. One module each, found by glob.

A policy is a function `decide(measured, *, option=default, ...)`, pure and deterministic. It is named by a text: the
name of its module, with options NAME:OPTION=VALUE,OPTION=VALUE. Adding one adds a module to this folder.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from impls.protocol.named import defaults_of, modules_with, read_policy


@dataclass(frozen=True)
class Interval:
    """What was measured while epochs of one number of workers ran, none of them in a migration.

    Attributes:
        begin_s, end_s: when the last epoch before it ended, and its own last one: wall clock as it was at the start,
            and on from there by a clock that never goes back.
        workers: number of workers.
        offered_rate: records/s that came to the source, processed or not.
        applied: records that each worker applied; `useful_s`: seconds in which it did so, neither waiting for records
            nor for the broker (DS2, OSDI 2018, section 3.2: useful time), of equal length.
        backlog: records at its end that the broker has and no finished epoch has applied, those in queues included.
        backlog_before: the same at its begin.
        latency_ms: the percentile of latency that was asked for, None where none is measured.
        epochs: how many ended in it.
        hosts: on which workers were.
    """

    begin_s: float
    end_s: float
    workers: int
    offered_rate: float
    applied: tuple[float, ...]
    useful_s: tuple[float, ...]
    backlog: float = 0.0
    backlog_before: float = 0.0
    latency_ms: float | None = None
    epochs: int = 1
    hosts: int = 1

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.begin_s

    @property
    def processed_rate(self) -> float:
        """Records/s applied by all workers."""
        return sum(self.applied) / self.seconds

    @property
    def utilisation(self) -> float:
        """Share of its time that a worker was of use, 0..1, in the mean over the workers."""
        return sum(self.useful_s) / self.seconds / self.workers

    @property
    def true_rate(self) -> float | None:
        """Records per second of useful time, in the mean over the workers that had any; None if none had.

        That is DS2's aggregated true processing rate over the number of instances. A worker without a whole record, or
        without a microsecond of useful time, tells nothing of what it can do.
        """
        rates = [n / s for n, s in zip(self.applied, self.useful_s, strict=True) if n >= 1 and s >= 1e-6]
        return sum(rates) / len(rates) if rates else None

    @property
    def skew(self) -> float:
        """Useful time of the busiest worker over the mean, 1 where none had any."""
        mean = sum(self.useful_s) / self.workers
        return max(self.useful_s) / mean if mean > 0 else 1.0

    def numbers(self) -> dict[str, float]:
        """Returns the figures that a decision is told with."""
        rate = self.true_rate
        values: dict[str, float | None] = {
            "offered_rate": self.offered_rate,
            "processed_rate": self.processed_rate,
            "true_rate": rate,
            "utilisation": self.utilisation,
            "skew": self.skew,
            "backlog": self.backlog,
            "latency_ms": self.latency_ms,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "hosts": self.hosts,
        }
        return {name: round(value, 3) for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Rescaled:
    """A rescale that was decided: when, from how many workers to how many, and the rate that was offered then."""

    at_s: float
    before: int
    after: int
    offered_rate: float = 0.0


@dataclass(frozen=True)
class Measured:
    """The question to a policy.

    Attributes:
        intervals: the last ones, oldest first, at least one; earlier ones may be of other numbers of workers.
        past: the rescales decided, oldest first.
    """

    intervals: tuple[Interval, ...]
    past: tuple[Rescaled, ...] = ()

    @property
    def last(self) -> Interval:
        """The interval that has just ended."""
        return self.intervals[-1]

    @property
    def workers(self) -> int:
        """Number of workers there are."""
        return self.last.workers

    @property
    def current(self) -> tuple[Interval, ...]:
        """The intervals since the number of workers last changed, oldest first."""
        since = self.past[-1].at_s if self.past else float("-inf")
        own = takewhile(lambda one: one.workers == self.workers and one.begin_s >= since, reversed(self.intervals))
        return tuple(own)[::-1]


@dataclass(frozen=True)
class Decision:
    """The answer of a policy.

    Attributes:
        workers: how many there are to be; None where nothing is to change.
        reason: why, as a sentence.
        numbers: what led to it, by name.
    """

    workers: int | None
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class AutoscalePolicy(Protocol):
    """Decides; raises UsageError for an option out of range, whatever was measured."""

    def __call__(self, measured: Measured, /, **options: float) -> Decision:
        """Returns the decision."""


def __getattr__(name: str) -> Any:
    if name == "Policy":  # which `impls.placement` has, too
        warnings.warn("impls.autoscale.Policy is AutoscalePolicy now.", DeprecationWarning, stacklevel=2)
        return AutoscalePolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def policies() -> dict[str, AutoscalePolicy]:
    """Returns the policies by name: modules of this folder that define a function `decide`."""
    return modules_with(Path(__file__).parent, __name__, "decide")


_IDLE = Measured((Interval(0.0, 1.0, 1, 0.0, (0.0,), (0.0,)),))


def policy_of(text: str) -> Callable[[Measured], Decision]:
    """Returns the policy that a text names, such as ds2:utilisation=0.8,catch_up_s=30.

    Raises:
        UsageError: an unknown policy or option, or an option out of range.
    """
    name, options = read_policy("autoscaling policy", text, policies())
    decide = partial(policies()[name], **options)
    decide(_IDLE)  # which refuses what is out of range
    return decide


def memory_s(text: str) -> float:
    """Returns how many seconds of intervals the policy that a text names looks back: its longest option in seconds."""
    name, given = read_policy("autoscaling policy", text, policies())
    options = {**defaults_of(policies()[name]), **given}
    return max((value for option, value in options.items() if option.endswith("_s")), default=0.0)
