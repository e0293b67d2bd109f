"""Simulated workers: what a written plan does to bins and queues, and how long it takes."""

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.suites.scale.load import EvenLoad, Segments
from harness.suites.scale.network import Costs, Crossing, ModelNetwork
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.view import Observation
from impls.worker.pull import on_demand, within_budget

_FAR_MS = 1e12
_OVERLOAD = 1000.0


@dataclass(frozen=True)
class SimulatedEpoch:
    """The outcome of an epoch; times in ms since the load's begin, sizes in bytes.

    Attributes:
        cut_ms: its records are those scheduled before; `begin_ms` and `end_ms` are those of its work.
        latencies: of the records whose results it gave out.
        queued: records that wait at its end.
        moved_bins, moved_bytes, copied_bytes: what was pulled, and what replicas took.
        crossed_bytes: what was pulled from other hosts' workers.
        longest_pull_ms: of any worker.
        applied: records that each worker applied.
    """

    number: int
    cut_ms: float
    begin_ms: float
    end_ms: float
    latencies: Segments
    queued: int
    moved_bins: int
    moved_bytes: float
    copied_bytes: float
    longest_pull_ms: float
    crossed_bytes: float = 0.0
    applied: tuple[float, ...] = ()


class ModelCluster:
    """Workers with bins of `sizes` bytes under a load; time passes only in `run` and `stop`.

    Records of a bin wait in its queue, in order, while its state is not where it is routed: as they arrive evenly, a
    queue is known by the time at which it began.
    """

    def __init__(  # noqa: PLR0917
        self, load: EvenLoad, costs: Costs, sizes: NDArray[np.int64], location: NDArray[np.int32], seed: int = 1,
        network: ModelNetwork | None = None,
    ):  # fmt: skip
        self.costs, self.sizes, self._load, self._network = costs, sizes, load, network
        self._crossed = 0.0
        self.location = location.astype(np.int32)
        self._queue_from = np.full(len(sizes), _FAR_MS)
        self._queued = np.zeros(len(sizes), np.int64)
        self._waiting = False
        self._random = np.random.default_rng(seed)
        self.now_ms = self._last_cut = 0.0
        self._seen = load.until(0.0)
        self._cuts = [0.0]  # cut of each epoch's predecessor; a replica of epoch e shows what came before _cuts[e + 1]
        self.replicas: dict[tuple[int, int], int] = {}

    def stop(self, what: str) -> None:
        """Lets the time pass in which the query, or the application, is stopped and started."""
        self.now_ms += self.costs.stop_s(what) * 1e3 * self._noise()

    def run(self, written: WrittenPlan) -> tuple[Observation, SimulatedEpoch]:
        """Runs one plan; returns the controller's observation and the simulated epoch."""
        plan, now, before = written.plan, self.now_ms, self._last_cut
        cut = self._load.cut(before, now)
        seen = self._load.until(cut)
        arrived = seen - self._seen
        self._seen, self._last_cut = seen, cut
        due = arrived + self._queued if self._waiting else arrived
        pulled = _chosen_pulls(plan, due, self.sizes)
        bins = np.fromiter((pull.bin for pull in pulled), np.int64, len(pulled))
        workers = written.workers
        pull_ms, moved = self._pull(plan, pulled, bins, workers)
        self.location[bins] = plan.routing[bins]
        runnable = self._runnable(plan)
        work = np.bincount(plan.routing[runnable], weights=due[runnable], minlength=workers)
        spent = pull_ms + work * self.costs.record_us / 1e3
        noise, stretch = self._noise(), self._stretch(spent)
        done = now + self.costs.response_ms * noise + spent * stretch
        if isinstance(runnable, slice) and not self._waiting:
            latencies = _fresh(done, work.astype(np.int64), cut=cut, before=before)
        else:
            latencies = self._latencies(plan.routing, arrived, runnable, done, cut=cut, before=before)
        self._keep_queues(arrived, runnable, before)
        copy_ms, copied = self._copy(plan, arrived, workers)
        self.now_ms = now + (
            (self.costs.epoch_ms + self.costs.worker_ms * workers) * noise
            + float((spent * stretch).max() + (copy_ms * self._stretch(copy_ms)).max())
        )
        self._cuts.append(cut)
        if self.now_ms - now > _OVERLOAD * (self.costs.epoch_ms + 1e3):
            raise OverflowError("an epoch takes ever longer: the workers cannot keep up with the load")
        epoch = SimulatedEpoch(
            written.epoch, cut, now + self.costs.between_ms * noise, self.now_ms, latencies, int(self._queued.sum()),
            len(pulled), moved, copied, float((pull_ms * stretch).max()), self._crossed, tuple(work.tolist()),
        )  # fmt: skip
        return self._observation(written, pulled, arrived, epoch, self.now_ms - now), epoch

    def _noise(self) -> float:
        return float(np.exp(self._random.normal(0.0, self.costs.jitter))) if self.costs.jitter else 1.0

    def _stretch(self, spent: NDArray[np.float64]) -> float:
        """Returns how much longer work takes because fewer workers than there are run at the same time."""
        longest = float(spent.max(initial=0.0))
        if not self.costs.slots or not longest:
            return 1.0
        return max(1.0, float(spent.sum()) / self.costs.slots / longest)

    def _pull(
        self, plan: EpochPlan, pulled: list[Pull], bins: NDArray[np.int64], workers: int
    ) -> tuple[NDArray[np.float64], float]:
        """Returns each worker's time for its pulls, and the bytes shipped; a source serves all at one bandwidth."""
        self._crossed = 0.0
        if not pulled:
            return np.zeros(workers), 0.0
        costs, sizes = self.costs, self.sizes[bins].astype(np.float64)
        targets, sources = plan.routing[bins], self.location[bins]
        number = np.bincount(targets, minlength=workers)
        inward = np.bincount(targets, weights=sizes, minlength=workers)
        if plan.from_checkpoint:
            read = inward / costs.checkpoint_bytes_s * 1e3 + number * costs.checkpoint_bin_ms
            return self._received(read, inward), float(sizes.sum())
        local = inward / costs.pull_bytes_s * 1e3 + number * costs.pull_bin_ms
        if plan.from_replica:
            behind = self._delta_bytes(bins, targets)
            delta = np.bincount(targets, weights=behind, minlength=workers)
            return local + self._received(delta / costs.replica_bytes_s * 1e3, delta), float(behind.sum())
        if self._network is not None and not np.isinf(costs.pull_bytes_s):
            return self._across(self._network, targets, sources, sizes, workers), float(sizes.sum())
        within = self._within(targets, sources, sizes, workers)
        return within, 0.0 if np.isinf(costs.pull_bytes_s) else float(sizes.sum())

    def _received(self, ms: NDArray[Any], size: NDArray[Any]) -> NDArray[np.float64]:
        """Returns each worker's time to read so many bytes from the checkpoint, which is on no host of the workers."""
        return ms if self._network is None else np.maximum(ms, self._network.receive_ms(size))

    def _across(
        self,
        network: ModelNetwork,
        targets: NDArray[np.int32],
        sources: NDArray[np.int32],
        sizes: NDArray[np.float64],
        workers: int,
    ) -> NDArray[np.float64]:
        """Returns each worker's time for pulls within its host and from others, one after the other."""
        near = network.homes[targets] == network.homes[sources]
        here = self._within(targets[near], sources[near], sizes[near], workers)
        far = ~near
        self._crossed = float(sizes[far].sum())
        crossing = Crossing(network, self.costs, targets[far], sources[far], sizes[far])
        return here + crossing.times_ms(workers)

    def _within(
        self, targets: NDArray[np.int32], sources: NDArray[np.int32], sizes: NDArray[np.float64], workers: int
    ) -> NDArray[np.float64]:
        """Returns each worker's time for pulls from environments that it can open; each serves all at one bandwidth."""
        costs = self.costs
        inward = np.bincount(targets, weights=sizes, minlength=workers)
        local = inward / costs.pull_bytes_s * 1e3 + np.bincount(targets, minlength=workers) * costs.pull_bin_ms
        outward = np.bincount(sources, weights=sizes, minlength=workers) / costs.pull_bytes_s * 1e3
        np.maximum.at(local, targets, outward[sources])
        return local

    def _delta_bytes(self, bins: NDArray[np.int64], workers: NDArray[np.int32]) -> NDArray[np.float64]:
        """Returns the bytes that the replicas of bins at workers lack, all of a bin's where there is none."""
        pairs = zip(bins.tolist(), workers.tolist(), strict=True)
        epochs = np.array([self.replicas.get(pair, -1) for pair in pairs], np.int64)
        shown = np.array(self._cuts)[np.minimum(epochs, len(self._cuts) - 2) + 1]
        upto = self._load.until(self._cuts[-1], bins)
        since = np.maximum(upto - self._load.until(shown, bins), 0) * self.costs.log_record_bytes
        return np.where(epochs < 0, self.sizes[bins], np.minimum(since, self.sizes[bins])).astype(np.float64)

    def _copy(self, plan: EpochPlan, arrived: NDArray[np.int64], workers: int) -> tuple[NDArray[np.float64], float]:
        """Brings replicas and standbys up; returns each worker's time behind its results, and the bytes read."""
        spent = np.zeros(workers)
        pairs = plan.copies.all
        if not pairs:
            return spent, 0.0
        named = np.array(pairs, np.int64)
        behind = self._delta_bytes(named[:, 0], named[:, 1].astype(np.int32))
        size = np.bincount(named[:, 1], weights=behind, minlength=workers)
        spent += self._received(size / self.costs.replica_bytes_s * 1e3, size)
        spent += np.bincount(named[:, 1], minlength=workers) * self.costs.replica_bin_ms
        if plan.copies.standbys:
            standbys = np.array(plan.copies.standbys, np.int64)
            records = np.bincount(standbys[:, 1], weights=arrived[standbys[:, 0]], minlength=workers)
            spent += records * self.costs.record_us / 1e3
        return spent, float(behind.sum())

    def _runnable(self, plan: EpochPlan) -> NDArray[np.bool_] | slice:
        """Returns which bins have their state where they are routed and are not held; a slice for all of them."""
        here = self.location == plan.routing
        if plan.hold:
            here[np.array(plan.hold, np.int64)] = False
        return slice(None) if here.all() else here

    def _latencies(
        self,
        routing: NDArray[np.int32],
        arrived: NDArray[np.int64],
        runnable: NDArray[np.bool_] | slice,
        done: NDArray[np.float64],
        *,
        cut: float,
        before: float,
    ) -> Segments:
        """Returns new records by worker, and those that have waited by bin."""
        waited = self._queued > 0
        new = np.zeros(len(arrived), np.bool_)
        new[runnable] = True
        late = np.flatnonzero(waited & new)
        new[late] = False
        count = np.bincount(routing[new], weights=arrived[new], minlength=len(done)).astype(np.int64)
        fresh = _fresh(done, count, cut=cut, before=before)
        at = done[routing[late]]
        return Segments(
            np.concatenate([fresh.low, at - cut]),
            np.concatenate([fresh.high, at - self._queue_from[late]]),
            np.concatenate([fresh.count, (arrived + self._queued)[late]]),
        )

    def _keep_queues(self, arrived: NDArray[np.int64], runnable: NDArray[np.bool_] | slice, before: float) -> None:
        if isinstance(runnable, slice) and not self._waiting:
            return
        waits = arrived + self._queued
        waits[runnable] = 0
        fresh = (waits > 0) & (self._queued == 0)
        self._queue_from[fresh] = before
        self._queued = waits
        self._waiting = bool(waits.any())

    def _observation(
        self,
        written: WrittenPlan,
        pulled: list[Pull],
        arrived: NDArray[np.int64],
        epoch: SimulatedEpoch,
        epoch_ms: float,
    ) -> Observation:
        seen = np.flatnonzero(arrived)
        queued = np.flatnonzero(self._queued) if self._waiting else seen[:0]
        last = written.epoch
        copied = tuple((b, w, last - 1) for b, w in written.plan.copies.replicas)
        copied += tuple((b, w, last) for b, w in written.plan.copies.standbys)
        self.replicas |= {(bin_, worker): at for bin_, worker, at in copied}
        for pair in written.forgotten:
            self.replicas.pop(pair, None)
        for pull in pulled:
            self.replicas.pop((pull.bin, pull.target), None)
        every = np.arange(len(arrived) if last == 0 else 0, dtype=np.int32)
        return Observation(
            last,
            pulled=tuple(pull.bin for pull in pulled),
            records=(seen.astype(np.int32), arrived[seen]),
            queued=(queued.astype(np.int32), self._queued[queued]),
            sizes=(every, self.sizes[every]),
            epoch_ms=epoch_ms,
            pull_ms=epoch.longest_pull_ms,
            replicas=copied,
        )


def _fresh(done: NDArray[np.float64], count: NDArray[np.int64], *, cut: float, before: float) -> Segments:
    """Returns the latencies of records that came since the last cut, by worker."""
    some = np.flatnonzero(count)
    return Segments(done[some] - cut, done[some] - before, count[some])


def _chosen_pulls(plan: EpochPlan, need: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[Pull]:
    """Returns the pulls that workers do, chosen worker by worker by the runtime's own rules."""
    if not plan.on_demand and plan.budget_bytes is None:
        return list(plan.pulls)
    bins, target = [pull.bin for pull in plan.pulls], attrgetter("target")
    size = dict(zip(bins, sizes[bins].tolist(), strict=True))
    wanted = dict(zip(bins, need[bins].tolist(), strict=True))
    chosen: list[Pull] = []
    for _, pulls in groupby(sorted(plan.pulls, key=target), target):
        mine, most = list(pulls), plan.budget_bytes
        chosen += on_demand(mine, wanted, size, plan) if plan.on_demand else within_budget(mine, size, most)
    return chosen
