"""One simulated migration: real mechanism, real controller, real validation, simulated workers."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.suites.scale.cluster import ModelCluster, SimulatedEpoch
from harness.suites.scale.load import EvenLoad, Histogram
from harness.suites.scale.network import Costs, ModelNetwork
from impls import catalog
from impls.errors import UsageError
from impls.protocol.controller import Controller
from impls.protocol.events import Command
from impls.protocol.plan import WrittenPlan
from impls.protocol.view import Observation

_EPOCHS_MAX = 200_000  # a migration that takes more is given up
_STEADY_EPOCHS = 20
_REPLICA_EPOCHS = 5_000
_CALM_EPOCHS = 500
_CALM_FACTOR = 1.1


@dataclass(frozen=True)
class SimulationSetting:
    """What is simulated.

    Attributes:
        initial, goal: int32, shape (B,).
        sizes: int64, bytes of each bin. shares: each bin's share of the records.
        rate: records per second. options: the mechanism's.
        network: between the hosts of the workers, None where there is nothing between them.
    """

    initial: NDArray[np.int32]
    goal: NDArray[np.int32]
    sizes: NDArray[np.int64]
    shares: NDArray[np.float64]
    rate: float
    costs: Costs
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    network: ModelNetwork | None = None


@dataclass
class Prediction:
    """The outcome of one migration, summed up epoch by epoch; latencies in ms, `planning_s` is this program's own time.

    Attributes:
        epochs: of the migration.
        steady_p50_ms, steady_max_ms: before the command.
        peak_ms: highest latency of the records in flight during the migration; None without one.
        migrating_p99_ms: of the same records.
        duration_s: from the first to the last moved bin, or from the stop; calm_s: from the command until the highest
            latency of an epoch is back within 1.1x the steady one, None if it was not within 500 epochs.
        moved_bytes: pulled in the migration, `crossed_bytes` of them from other hosts' workers. copied_bytes: read for
            replicas in it.
        standing_bytes: read for replicas before it.
    """

    mechanism: str
    steady_epoch_ms: float
    steady_p50_ms: float
    steady_max_ms: float
    standing_bytes: float
    epochs: int = 0
    peak_ms: float | None = None
    migrating_p99_ms: float | None = None
    duration_s: float | None = None
    calm_s: float | None = None
    longest_pull_ms: float = 0.0
    moved_bins: int = 0
    moved_bytes: float = 0.0
    crossed_bytes: float = 0.0
    copied_bytes: float = 0.0
    planning_s: float = 0.0


def predict(mechanism: str, setting: SimulationSetting) -> Prediction:
    """Simulates one migration from a steady query to its end and until latencies are calm again.

    Raises:
        UsageError: the workers cannot keep up with the load, or the migration does not end.
    """
    try:
        return _Run(mechanism, setting).predict()
    except OverflowError as error:
        raise UsageError(f"{mechanism}: {error}. Lower --rate or give more workers.") from error


class SimulatedQuery:
    """A controller with its mechanism over a simulated cluster, epoch by epoch.

    Attributes:
        number: of the next epoch.
        planning_s: time that this program took for plans.
        stopped_ms: when the query was stopped last, None if it never was.
    """

    def __init__(self, name: str, options: Mapping[str, Any], cluster: ModelCluster):
        self.cluster = cluster
        self.controller = Controller(cluster.location.copy(), catalog.make(name, **catalog.known(name, options)))
        self.number, self.planning_s = 0, 0.0
        self.stopped_ms: float | None = None

    def step(self) -> tuple[WrittenPlan, SimulatedEpoch]:
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
        return written, epoch

    def _plan(self) -> WrittenPlan:
        begin = time.perf_counter()
        written = self.controller.plan(self.number, 1)
        self.planning_s += time.perf_counter() - begin
        return written


class _Run(SimulatedQuery):
    """One migration of a steady query."""

    def __init__(self, name: str, setting: SimulationSetting):
        self.name, self.setting = name, setting
        load, costs = EvenLoad(setting.shares * setting.rate, setting.seed), setting.costs.of(name)
        for assignment in (setting.initial, setting.goal):
            _check_load(assignment, setting, costs)
        cluster = ModelCluster(load, costs, setting.sizes, setting.initial, setting.seed, setting.network)
        super().__init__(name, setting.options, cluster)

    def predict(self) -> Prediction:
        steady = list(self._settle())
        quiet = steady[-_STEADY_EPOCHS:]
        calm = Histogram()
        for epoch in quiet:
            calm.add(epoch.latencies)
        prediction = Prediction(
            mechanism=self.name,
            steady_epoch_ms=float(np.median([epoch.end_ms - epoch.cut_ms for epoch in quiet])),
            steady_p50_ms=calm.percentile(0.5),
            steady_max_ms=max(epoch.latencies.max for epoch in quiet),
            standing_bytes=sum(epoch.copied_bytes for epoch in steady),
        )
        if self.name != "none":
            self._migrate(prediction)
        prediction.planning_s = self.planning_s
        return prediction

    def _migrate(self, prediction: Prediction) -> None:
        """Migrates to the goal, and runs on until latencies are calm again."""
        migrating, commanded_ms, first, end_ms = Histogram(), self.cluster.now_ms, self.number, 0.0
        begun_ms: float | None = None
        self.controller.accept(Command("c", "rebalance", self.setting.goal, "simulated", first))
        while self.controller.migrating:
            self._check_length(first)
            _, epoch = self.step()
            end_ms = epoch.end_ms
            migrating.add(epoch.latencies)
            prediction.moved_bins += epoch.moved_bins
            prediction.moved_bytes += epoch.moved_bytes
            prediction.crossed_bytes += epoch.crossed_bytes
            prediction.copied_bytes += epoch.copied_bytes
            prediction.longest_pull_ms = max(prediction.longest_pull_ms, epoch.longest_pull_ms)
            if epoch.moved_bins:  # it begins when the query is stopped for it, else with the first moved bin
                begun_ms = self.stopped_ms or epoch.begin_ms if begun_ms is None else begun_ms
                prediction.duration_s = (end_ms - begun_ms) / 1e3
        prediction.epochs = self.number - first
        for _ in range(_CALM_EPOCHS):
            _, epoch = self.step()
            if epoch.cut_ms - epoch.latencies.max < end_ms:  # some of its records were due during the migration
                migrating.add(epoch.latencies)
            if epoch.latencies.max <= prediction.steady_max_ms * _CALM_FACTOR and epoch.cut_ms > end_ms:
                prediction.calm_s = (epoch.cut_ms - commanded_ms) / 1e3
                break
        prediction.peak_ms, prediction.migrating_p99_ms = migrating.max_ms or None, migrating.percentile(0.99) or None

    def _settle(self) -> Iterator[SimulatedEpoch]:
        """Yields steady epochs: at least twenty, and as many as the first copies of standing replicas need."""
        for number in range(_REPLICA_EPOCHS):
            there = len(self.controller.replicas)
            yield self.step()[1]
            if number >= _STEADY_EPOCHS and len(self.controller.replicas) == there:
                return

    def _check_length(self, first: int) -> None:
        if self.number - first >= _EPOCHS_MAX:
            left = self.controller.misplaced
            raise UsageError(f"{self.name}: {left} bins are left after {_EPOCHS_MAX} epochs.")


def _check_load(assignment: NDArray[np.int32], setting: SimulationSetting, costs: Costs) -> None:
    """Raises OverflowError if a worker, or all of them on their slots, get more records than they can do."""
    busy = np.bincount(assignment, weights=setting.shares) * setting.rate * costs.record_us / 1e6
    worker = int(busy.argmax())
    if busy[worker] >= 1:
        raise OverflowError(f"worker {worker} gets {busy[worker]:.1f} times the records that it can do")
    if costs.slots and busy.sum() >= costs.slots:
        raise OverflowError(f"the workers need {busy.sum():.1f} cores and have {costs.slots}")
