"""A simulated query under a load that changes: real policy, real mechanism, real controller, simulated workers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from generators.rates import Schedule
from harness.measure.scores import Changed, Needed, Score, oscillations, right_after
from harness.suites.scale.cluster import ModelCluster, SimulatedEpoch
from harness.suites.scale.load import ShapedLoad
from harness.suites.scale.network import Costs
from harness.suites.scale.simulate import SimulatedQuery
from impls.autoscale.intervals import Gathering, Look, Sample
from impls.autoscale.loop import Autoscaler, AutoscaleSettings
from impls.errors import UsageError
from impls.placement import goal, initial
from impls.protocol.events import Command
from impls.protocol.plan import WrittenPlan

_PLACE = ("in", 0)
_SLICE_MS = 250.0
_DRAIN_MOST = 20  # times the load's length
_ABOVE = 0.01  # share of records above the objective from which on the 99th percentile is


@dataclass(frozen=True)
class AutoscaledSetting:
    """What is simulated.

    Attributes:
        schedule: of all records; `shares`: of the bins in them, shape (B,).
        sizes: bytes of each bin.
        workers: at the begin.
        autoscale: policy, bounds and times; None leaves the number as it is.
        needed: what is right.
        lead_s, end_s: begin and end of what is scored; `step_s` when the load steps, None where it does not.
        objective_ms: of the latency.
        placement: policy that places bins; `options`: the mechanism's; `limit`: most records of an epoch.
    """

    schedule: Schedule
    shares: NDArray[np.float64]
    sizes: NDArray[np.int64]
    workers: int
    autoscale: AutoscaleSettings | None
    needed: Needed
    costs: Costs
    lead_s: float
    end_s: float
    objective_ms: float
    step_s: float | None = None
    placement: str = "minimal_move"
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    limit: int | None = None


@dataclass(frozen=True)
class SimulatedOutcome:
    """What a simulated query came to; `steps` are its numbers of workers, `rescales` its decisions that rescaled."""

    score: Score
    steps: tuple[Changed, ...]
    rescales: tuple[dict[str, Any], ...]


def predict_autoscaled(mechanism: str, setting: AutoscaledSetting) -> SimulatedOutcome:
    """Simulates a query under a load; raises UsageError when epochs grow without end."""
    try:
        return _Run(mechanism, setting).run()
    except OverflowError as error:
        raise UsageError(f"{mechanism}: {error}.") from error


class _Run(SimulatedQuery):
    def __init__(self, name: str, setting: AutoscaledSetting):
        start, costs = initial(len(setting.shares), setting.workers), setting.costs.of(name)
        self.setting, self.load = setting, ShapedLoad(setting.shares, setting.schedule, setting.seed, setting.limit)
        super().__init__(name, setting.options, ModelCluster(self.load, costs, setting.sizes, start, setting.seed))
        self.record_s = costs.record_us / 1e6
        self.loop = None if setting.autoscale is None else Autoscaler(setting.autoscale)
        self.gathering, self.due_ms = Gathering(0.99), 0.0
        self.rescales: list[dict[str, Any]] = []
        self.steps = [Changed(0.0, setting.workers)]
        self.worker_ms = 0.0
        self.slices = _Slices(setting)

    def run(self) -> SimulatedOutcome:
        end_ms, taken_ms = self.setting.end_s * 1e3, 0.0
        while taken_ms < end_ms and self.cluster.now_ms < _DRAIN_MOST * end_ms:
            before = self.cluster.now_ms
            written, epoch = self.step()
            taken_ms = epoch.cut_ms
            self._count(written, epoch, before)
            if self.loop is not None and before < end_ms:  # the policy ends with the load, what is left is worked off
                self._decide(self.loop, written, epoch)
        setting, step = self.setting, self.setting.step_s
        right = None if step is None else right_after(self.steps, setting.needed, step, setting.end_s)
        taken = None
        if step is not None and right is not None:
            taken = sum(step <= rescale["at_s"] <= step + right for rescale in self.rescales)
        turned = oscillations(self.rescales)
        worker_s, above_s = self.worker_ms / 1e3, self.slices.above_s()
        score = Score(above_s, worker_s, len(self.rescales), turned, right, taken)
        return SimulatedOutcome(score, tuple(self.steps), tuple(self.rescales))

    def _count(self, written: WrittenPlan, epoch: SimulatedEpoch, before_ms: float) -> None:
        setting = self.setting
        begin, end = max(before_ms, setting.lead_s * 1e3), min(epoch.end_ms, setting.end_s * 1e3)
        self.worker_ms += max(end - begin, 0.0) * written.workers
        if not written.migrating and begin < end and self.steps[-1].workers != written.workers:
            self.steps.append(Changed(before_ms / 1e3, written.workers))
        self.slices.add(epoch)

    def _decide(self, loop: Autoscaler, written: WrittenPlan, epoch: SimulatedEpoch) -> None:
        now_s, gathering = epoch.end_ms / 1e3, self.gathering
        applied = tuple(int(n) for n in epoch.applied)
        consumed, workers = {_PLACE: self.load.due(epoch.cut_ms)}, len(np.unique(written.plan.routing))
        useful_s = tuple(n * self.record_s for n in applied)
        gathering.add(
            Sample(self.number, now_s, consumed, workers, written.migrating, applied, useful_s, epoch.queued, 1)
        )
        if self.controller.migrating:
            gathering.give_up()
            return
        look = Look(now_s, {_PLACE: self.load.due(epoch.end_ms)})
        if gathering.first is not None:
            gathering.begin(gathering.first, look)
            self.due_ms = epoch.end_ms + loop.settings.interval_s * 1e3
        elif gathering.last is not None and epoch.end_ms >= self.due_ms:
            if gathering.disturbed:
                loop.moved()
            decided = loop.decide(gathering.close(gathering.last, look))
            gathering.disturbed = False
            self.due_ms = epoch.end_ms + loop.settings.interval_s * 1e3
            if decided.wanted is not None:
                self.rescales.append(decided.to_json())
                self._rescale(decided.wanted)

    def _rescale(self, workers: int) -> None:
        current = self.controller.commanded
        rates = self.controller.view(self.number).rate
        wanted = goal(self.setting.placement, current, workers, rates=rates, sizes=self.setting.sizes)
        self.controller.accept(Command(f"c{self.number}", "rescale", wanted, "simulated", self.number))


class _Slices:
    """Records by their scheduled time, in slices of 250 ms: all of them, and those above the objective."""

    def __init__(self, setting: AutoscaledSetting):
        self._objective, self._lead = setting.objective_ms, setting.lead_s * 1e3
        self._edges = np.arange(0.0, setting.end_s * 1e3 + 1.0, _SLICE_MS)
        self._all, self._above = (np.zeros(len(self._edges) - 1) for _ in range(2))

    def add(self, epoch: SimulatedEpoch) -> None:
        """Adds the records whose results an epoch gave out, spread evenly over the time in which they were due."""
        segments = epoch.latencies
        done, begin = epoch.cut_ms + segments.low, epoch.cut_ms + segments.low - segments.high
        late = np.clip(done - self._objective, begin, epoch.cut_ms)
        self._all += self._spread(begin, np.full(len(done), epoch.cut_ms), segments.count, segments.high - segments.low)
        self._above += self._spread(begin, late, segments.count, segments.high - segments.low)

    def _spread(
        self, low: NDArray[np.float64], high: NDArray[np.float64], count: NDArray[np.int64], width: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns how many records of each slice are due from low to high, `count` in the whole width."""
        first = max(int(np.searchsorted(self._edges, low.min(initial=np.inf), "right")) - 1, 0)
        last = min(int(np.searchsorted(self._edges, high.max(initial=-np.inf), "left")) + 1, len(self._edges))
        out = np.zeros(len(self._all))
        if last - first < 2:
            return out
        edges = self._edges[first:last]
        each = count / np.maximum(width, 1e-9)
        inside = np.clip(edges[:, None], low[None, :], high[None, :]) - low[None, :]
        out[first : last - 1] = np.diff((inside * each[None, :]).sum(axis=1))
        return out

    def above_s(self) -> float:
        """Returns the seconds whose 99th percentile was above the objective; with none of their records done too."""
        scored = self._edges[:-1] >= self._lead
        lost = scored & (np.cumsum(self._all[::-1])[::-1] == 0)  # behind all that was done
        known = scored & (self._all > 0)
        above = self._above[known] > _ABOVE * self._all[known]
        return float(above.sum() + lost.sum()) * _SLICE_MS / 1e3
