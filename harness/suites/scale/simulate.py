"""One simulated migration: real mechanism, real controller, real validation, simulated workers."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.suites.scale.cluster import Cluster, SimulatedEpoch
from harness.suites.scale.costs import Costs
from harness.suites.scale.load import EvenLoad, Histogram
from impls import catalog
from impls.errors import UsageError
from impls.protocol.controller import Controller
from impls.protocol.events import Command
from impls.protocol.observation import Observation
from impls.protocol.plan import WrittenPlan

__all__ = ["Prediction", "Setting", "predict"]

_STEADY_EPOCHS = 20
_REPLICA_EPOCHS = 5_000
_CALM_EPOCHS = 500
_CALM_FACTOR = 1.1


@dataclass(frozen=True)
class Setting:
    """What is simulated.

    Attributes:
        initial, goal: int32, shape (B,).
        sizes: int64, bytes of each bin. shares: each bin's share of the records.
        rate: records per second. options: the mechanism's.
        epochs_max: a migration that takes more is given up.
    """

    initial: NDArray[np.int32]
    goal: NDArray[np.int32]
    sizes: NDArray[np.int64]
    shares: NDArray[np.float64]
    rate: float
    costs: Costs
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    epochs_max: int = 200_000


@dataclass(frozen=True)
class Prediction:
    """The outcome of one migration; latencies in ms, `slowest_plan_ms` and `planning_s` are this program's own time.

    Attributes:
        steady_p50_ms, steady_max_ms: before the command.
        peak_ms: highest latency of the records in flight during the migration; None without one.
        migrating_p50_ms, migrating_p99_ms: of the same records.
        duration_s: from the first to the last moved bin, or from the stop; calm_s: from the command until the highest
            latency of an epoch is back within 1.1x the steady one, None if it was not within 500 epochs.
        epochs: of the migration. moved_bytes: pulled in it. copied_bytes: read for replicas in it.
        standing_bytes: read for replicas before it.
    """

    mechanism: str
    epochs: int
    steady_epoch_ms: float
    steady_p50_ms: float
    steady_max_ms: float
    peak_ms: float | None
    migrating_p50_ms: float | None
    migrating_p99_ms: float | None
    duration_s: float | None
    calm_s: float | None
    longest_pull_ms: float
    moved_bins: int
    moved_bytes: float
    copied_bytes: float
    standing_bytes: float
    planning_s: float
    slowest_plan_ms: float


def predict(mechanism: str, setting: Setting) -> Prediction:
    """Simulates one migration from a steady query to its end and until latencies are calm again.

    Raises:
        UsageError: the workers cannot keep up with the load, or the migration does not end.
    """
    try:
        return _Run(mechanism, setting).predict()
    except OverflowError as error:
        raise UsageError(f"{mechanism}: {error}. Lower --rate or give more workers.") from error


class _Run:
    """A controller with its mechanism over a simulated cluster."""

    def __init__(self, name: str, setting: Setting):
        known = catalog.options(name)
        given = {option: value for option, value in setting.options.items() if option in known}
        self.name, self.setting = name, setting
        self.mechanism = catalog.make(name, **given)
        load = EvenLoad(setting.shares * setting.rate, setting.seed)
        costs = setting.costs.of(name)
        for assignment in (setting.initial, setting.goal):
            _check_load(assignment, setting, costs)
        self.cluster = Cluster(load, costs, setting.sizes, setting.initial, setting.seed)
        self.controller = Controller(setting.initial, self.mechanism)
        self.number = 0
        self.plan_s: list[float] = []
        self.stopped_ms: float | None = None

    def predict(self) -> Prediction:
        steady = list(self._settle())
        quiet = steady[-_STEADY_EPOCHS:]
        calm, usual = Histogram(), max(epoch.latencies.max for epoch in quiet)
        for epoch in quiet:
            calm.add(epoch.latencies)
        commanded, first = self.cluster.now_ms, self.number
        migrating, watch = Histogram(), _Watch(usual, commanded)
        if self.name != "none":
            self.controller.accept(Command("c", "rebalance", self.setting.goal, "simulated", self.number))
            while self.controller.migrating:
                self._check_length(first)
                epoch = self._step()
                migrating.add(epoch.latencies)
                watch.see(epoch)
            epochs = self.number - first
            for _ in range(_CALM_EPOCHS):
                if watch.calm:
                    break
                watch.after(epoch := self._step())
                if epoch.cut_ms - watch.span_ms < watch.end_ms:  # some of its records were due during the migration
                    migrating.add(epoch.latencies)
        else:
            epochs = 0
        return Prediction(
            mechanism=self.name,
            epochs=epochs,
            steady_epoch_ms=float(np.median([epoch.end_ms - epoch.cut_ms for epoch in quiet])),
            steady_p50_ms=calm.percentile(0.5),
            steady_max_ms=usual,
            peak_ms=migrating.max_ms or None,
            migrating_p50_ms=migrating.percentile(0.5) or None,
            migrating_p99_ms=migrating.percentile(0.99) or None,
            duration_s=watch.duration_s(self.stopped_ms),
            calm_s=watch.calm_s,
            longest_pull_ms=watch.longest_pull_ms,
            moved_bins=watch.moved_bins,
            moved_bytes=watch.moved_bytes,
            copied_bytes=watch.copied_bytes,
            standing_bytes=sum(epoch.copied_bytes for epoch in steady),
            planning_s=sum(self.plan_s),
            slowest_plan_ms=max(self.plan_s) * 1e3,
        )

    def _settle(self) -> Iterator[SimulatedEpoch]:
        """Yields steady epochs: at least twenty, and as many as the first copies of standing replicas need."""
        for number in range(_REPLICA_EPOCHS):
            there = len(self.controller.replicas)
            yield self._step()
            if number >= _STEADY_EPOCHS and len(self.controller.replicas) == there:
                return

    def _check_length(self, first: int) -> None:
        if self.number - first >= self.setting.epochs_max:
            left = self.controller.misplaced
            raise UsageError(f"{self.name}: {left} bins are left after {self.setting.epochs_max} epochs.")

    def _step(self) -> SimulatedEpoch:
        """Plans and runs one epoch, and stops before it if the plan asks for that."""
        written = self._plan()
        if written.plan.stop is not None:
            self.stopped_ms = self.cluster.now_ms
            self.controller.observe(Observation(self.number, stopped=True))
            self.cluster.stop(written.plan.stop)
            written = self._plan()
        seen, epoch = self.cluster.run(written)
        self.controller.observe(seen)
        self.number += 1
        return epoch

    def _plan(self) -> WrittenPlan:
        begin = time.perf_counter()
        written = self.controller.plan(self.number, 1)
        self.plan_s.append(time.perf_counter() - begin)
        return written


def _check_load(assignment: NDArray[np.int32], setting: Setting, costs: Costs) -> None:
    """Raises OverflowError if a worker, or all of them on their slots, get more records than they can do."""
    busy = np.bincount(assignment, weights=setting.shares) * setting.rate * costs.record_us / 1e6
    worker = int(busy.argmax())
    if busy[worker] >= 1:
        raise OverflowError(f"worker {worker} gets {busy[worker]:.1f} times the records that it can do")
    if costs.slots and busy.sum() >= costs.slots:
        raise OverflowError(f"the workers need {busy.sum():.1f} cores and have {costs.slots}")


class _Watch:
    """Sums a migration up, epoch by epoch, and says when latencies are calm again."""

    def __init__(self, usual_ms: float, commanded_ms: float):
        self._limit, self._commanded = usual_ms * _CALM_FACTOR, commanded_ms
        self._begin: float | None = None
        self._end = self.end_ms = self.span_ms = 0.0
        self.calm = False
        self.calm_s: float | None = None
        self.moved_bins, self.moved_bytes, self.copied_bytes, self.longest_pull_ms = 0, 0.0, 0.0, 0.0

    def see(self, epoch: SimulatedEpoch) -> None:
        """Takes in an epoch of the migration."""
        self.end_ms, self.span_ms = epoch.end_ms, epoch.latencies.max
        self.moved_bins += epoch.moved_bins
        self.moved_bytes += epoch.moved_bytes
        self.copied_bytes += epoch.copied_bytes
        self.longest_pull_ms = max(self.longest_pull_ms, epoch.longest_pull_ms)
        if epoch.moved_bins:
            self._begin = epoch.begin_ms if self._begin is None else self._begin
            self._end = epoch.end_ms

    def after(self, epoch: SimulatedEpoch) -> None:
        """Takes in an epoch behind the migration."""
        self.span_ms = epoch.latencies.max
        if epoch.latencies.max <= self._limit and epoch.cut_ms > self.end_ms:
            self.calm, self.calm_s = True, (epoch.cut_ms - self._commanded) / 1e3

    def duration_s(self, stopped_ms: float | None) -> float | None:
        """Returns the time from the first moved bin, or the stop, to the last one; None if nothing moved."""
        if self._begin is None:
            return None
        return (self._end - (self._begin if stopped_ms is None else stopped_ms)) / 1e3
