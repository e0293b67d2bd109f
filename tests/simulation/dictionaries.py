"""Workers as dictionaries: a written plan carried out in microseconds.

Semantics are those of the worker core: drop, pull, apply queued and new records of bins that are here, queue the rest.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from impls.protocol.controller import Controller
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.view import Observation

KEYS_PER_BIN = 3
DROP_ENTRIES = 4
Record = tuple[int, int]  # key, position in the stream


@dataclass
class Worker:
    """State of bins, key -> (count, position of the last record applied), and the queues of bins."""

    bins: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    queues: dict[int, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def apply(self, bin_: int, records: Iterable[Record]) -> None:
        state = self.bins[bin_]
        for key, at in records:
            count, last = state.get(key, (0, -1))
            assert at > last, f"key {key}: record {at} applied after record {last}"
            state[key] = count + 1, at


class Cluster:
    """All workers; `epoch` carries out a plan and returns what was observed. A seed orders the workers of an epoch."""

    def __init__(self, random: np.random.Generator):
        self.workers: dict[int, Worker] = defaultdict(Worker)
        self.done = -1
        self.last: Observation | None = None
        self._random = random

    def create(self, routing: Any) -> None:
        for bin_, worker in enumerate(routing.tolist()):
            self.workers[worker].bins[bin_] = {}

    def epoch(self, written: WrittenPlan, records: list[Record]) -> Observation:
        """Runs an epoch; run again it changes nothing and observes the same, as workers have committed it."""
        if self.done == written.epoch:
            assert self.last is not None
            return self.last
        assert self.done == written.epoch - 1
        for number in [n for n in self.workers if n >= written.workers]:
            gone = self.workers.pop(number)
            assert not gone.bins, f"worker {number} left with bins"
            assert not any(gone.queues.values()), f"worker {number} left with queued records"
        arrived: dict[int, list[Record]] = defaultdict(list)
        for key, at in records:
            arrived[key // KEYS_PER_BIN].append((key, at))
        pulled: list[int] = []
        for number in self._random.permutation(written.workers).tolist():
            mine = {b: r for b, r in arrived.items() if written.plan.routing[b] == number}
            pulled += self._step(number, written, mine)
        self.done, self.last = written.epoch, self._observation(written.epoch, written.plan, arrived, pulled)
        return self.last

    def _step(self, number: int, written: WrittenPlan, arrived: dict[int, list[Record]]) -> list[int]:
        me, plan = self.workers[number], written.plan
        for bin_, worker in written.drops:
            if worker == number:
                me.bins.pop(bin_, None)
        pulls = [p for p in plan.pulls if p.target == number]
        if plan.on_demand:
            pulls.sort(key=lambda p: -(len(arrived.get(p.bin, ())) + len(me.queues.get(p.bin, ()))))
        pulled = self._pull(me, pulls, plan.budget_bytes)
        ready = {b for b in me.bins if plan.routing[b] == number} - set(plan.hold)
        missing = {p.bin for p in pulls} - set(pulled)
        for bin_, records in arrived.items():
            me.queues[bin_] += records
        for bin_ in sorted(me.queues):
            if bin_ in ready and bin_ not in missing:
                me.apply(bin_, me.queues.pop(bin_))
        return pulled

    def _pull(self, me: Worker, pulls: list[Pull], budget: int | None) -> list[int]:
        left, pulled = budget, []
        for pull in pulls:
            state = self.workers[pull.source].bins[pull.bin]
            if left is not None and pulled and size_of(state) > left:
                break
            me.bins[pull.bin] = dict(state)
            pulled.append(pull.bin)
            left = None if left is None else max(0, left - size_of(state))
        return pulled

    def _observation(
        self, epoch: int, plan: EpochPlan, arrived: dict[int, list[Record]], pulled: list[int]
    ) -> Observation:
        queued = {b: len(q) for w in self.workers.values() for b, q in w.queues.items() if q}
        sizes = {b: size_of(s) for w in self.workers.values() for b, s in w.bins.items()}
        replicas = tuple((b, w, epoch - 1) for b, w in plan.copies.replicas)
        replicas += tuple((b, w, epoch) for b, w in plan.copies.standbys)
        return Observation(
            epoch, tuple(pulled), sparse({b: len(r) for b, r in arrived.items()}), sparse(queued), sparse(sizes),
            epoch_ms=epoch + 0.5, job_ms=0.25, pull_ms=float(len(pulled)), replicas=replicas,
            entries=tuple(len(self.workers[int(plan.routing[b])].bins[b]) for b in pulled),
        )  # fmt: skip

    def check_owners(self, controller: Controller) -> None:
        """Fails unless every bin is at its location and a copy elsewhere is one that waits for its drop."""
        for bin_, location in enumerate(controller.location.tolist()):
            holders = {number for number, worker in self.workers.items() if bin_ in worker.bins}
            assert location in holders, f"bin {bin_} is not at worker {location}"
            waiting = {drop.worker for drop in controller._drops if drop.bin == bin_}
            assert holders - {location} <= waiting, f"bin {bin_} has copies at {holders}"

    def counts(self, location: Any) -> dict[int, int]:
        """Count per key at the bins' owners, queued records left out."""
        states = [self.workers[worker].bins[bin_] for bin_, worker in enumerate(location.tolist())]
        return {key: count for state in states for key, (count, _) in state.items()}

    def copies(self) -> int:
        """Number of stored bins, stale copies included."""
        return sum(len(worker.bins) for worker in self.workers.values())

    def queued(self) -> int:
        """Number of records in queues."""
        return sum(len(queue) for worker in self.workers.values() for queue in worker.queues.values())


def size_of(state: dict[int, tuple[int, int]]) -> int:
    return 16 + 24 * len(state)


def sparse(values: dict[int, int]) -> Any:
    return np.array(list(values), np.int32), np.array(list(values.values()), np.int64)
