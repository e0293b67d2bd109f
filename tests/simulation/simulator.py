"""The real controller, plan validation and mechanisms over an in-memory store: a migration in milliseconds, by seed."""

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from impls.protocol.commands import Command
from impls.protocol.controller import Controller
from impls.protocol.events import Event
from impls.protocol.mechanism import Mechanism
from impls.protocol.observation import Observation
from impls.protocol.plan import Pull, WrittenPlan

KEYS_PER_BIN = 8
DROP_ENTRIES = 2 * KEYS_PER_BIN + 1


@dataclass
class Cluster:
    """Workers with their bins' counts and queues; `run` carries one written plan out as the step would."""

    bins: int
    location: NDArray[np.int32]
    state: dict[int, dict[int, Counter]] = field(default_factory=lambda: defaultdict(dict))
    queues: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for bin_, worker in enumerate(self.location.tolist()):
            self.state[worker][bin_] = Counter()

    def run(self, written: WrittenPlan, records: NDArray[np.int64]) -> Observation:
        """Drops, pulls, applies and queues; fails where the real step would meet a bin that is not there."""
        plan = written.plan
        for bin_, worker in written.drops:
            assert worker != plan.routing[bin_], f"bin {bin_} is dropped by its owner {worker}"
            del self.state[worker][bin_]
        for pull in plan.pulls:
            self.pull(pull)
        here = {b for b in range(self.bins) if b in self.state[plan.routing[b]] and self.location[b] == plan.routing[b]}
        self.apply(plan.routing, records, here - set(plan.hold))
        lengths = {b: len(q) for b, q in self.queues.items() if q}
        seen, counts = np.unique(records // KEYS_PER_BIN, return_counts=True)
        return Observation(
            written.epoch,
            pulled=tuple(pull.bin for pull in plan.pulls),
            entries=(KEYS_PER_BIN,) * len(plan.pulls),
            records=(seen.astype(np.int32), counts),
            replicas=tuple((b, w, written.epoch - 1) for b, w in plan.replicas)
            + tuple((b, w, written.epoch) for b, w in plan.shadows),
            queued=(np.array(list(lengths), np.int32), np.array(list(lengths.values()), np.int64)),
        )

    def pull(self, pull: Pull) -> None:
        """Copies a bin; the old owner keeps its copy until a plan drops it."""
        self.state[pull.target][pull.bin] = Counter(self.state[pull.source][pull.bin])
        self.location[pull.bin] = pull.target

    def apply(self, routing: NDArray[np.int32], records: NDArray[np.int64], runnable: set[int]) -> None:
        """Counts records of runnable bins behind what their queues hold; queues the others."""
        for bin_ in runnable:
            for key in self.queues.pop(bin_, []):
                self.state[routing[bin_]][bin_][key] += 1
        for key in records.tolist():
            bin_ = key // KEYS_PER_BIN
            if bin_ in runnable:
                self.state[routing[bin_]][bin_][key] += 1
            else:
                self.queues[bin_].append(key)

    def counts(self) -> Counter:
        """Returns the count of every key at its bin's location."""
        total: Counter = Counter()
        for bin_, worker in enumerate(self.location.tolist()):
            total.update(self.state[worker][bin_])
        return total

    def copies(self) -> int:
        """Number of stored bins, stale copies included."""
        return sum(len(bins) for bins in self.state.values())


@dataclass
class Simulation:
    """Epochs of a seeded load under a mechanism; in `crash_at` the driver is lost and rebuilt from the journals."""

    initial: NDArray[np.int32]
    mechanism: Mechanism
    seed: int
    crash_at: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.controller = Controller(self.initial, self.mechanism, drop_entries=DROP_ENTRIES)
        self.cluster = Cluster(len(self.initial), self.initial.copy())
        self.random = np.random.default_rng(self.seed)
        self.truth: Counter = Counter()
        self.events: list[Event] = []
        self.commands: list[Command] = []
        self.plans: list[WrittenPlan] = []
        self.observed: list[Observation] = []
        self.epoch = 0

    def command(self, goal: NDArray[np.int32]) -> None:
        """Commands a goal from this epoch on."""
        command = Command(f"c{len(self.commands)}", "rebalance", goal.astype(np.int32), "simulated", self.epoch)
        self.commands.append(command)
        self.controller.accept(command)

    def step(self) -> None:
        """Runs one epoch, through journals in their stored form."""
        records = self.random.integers(0, len(self.initial) * KEYS_PER_BIN, int(self.random.integers(0, 40)))
        written = self.controller.plan(self.epoch, 1)
        self.plans.append(WrittenPlan.from_json(json.loads(json.dumps(written.to_json()))))
        if written.plan.stop is not None:
            self.observed.append(Observation(self.epoch, stopped=True))
            if self.epoch in self.crash_at:
                self.crash()  # stopped and started, but the driver dies before the epoch is planned again
            else:
                self.controller.observe(self.observed[-1])
            written = self.controller.plan(self.epoch, 1)
            self.plans.append(WrittenPlan.from_json(json.loads(json.dumps(written.to_json()))))
        if self.epoch in self.crash_at:
            self.crash()
            self.controller.adopt(self.plans[-1])
            written = self.plans[-1]
        seen = self.cluster.run(written, records)
        self.truth.update(records.tolist())
        self.observed.append(Observation.from_json(json.loads(json.dumps(seen.to_json()))))
        self.events += self.controller.observe(seen)
        assert np.array_equal(self.controller.location, self.cluster.location)
        self.epoch += 1

    def crash(self) -> None:
        """Throws the controller away and builds it again from the journals."""
        before = self.controller
        self.controller = Controller(self.initial, self.mechanism, drop_entries=DROP_ENTRIES)
        self.controller.replay(self.plans, self.observed, self.commands)
        assert np.array_equal(self.controller.location, before.location)

    def until_done(self, most: int) -> int:
        """Runs epochs until no migration is under way and returns how many; fails after `most`."""
        start = self.epoch
        while self.controller.migrating:
            assert self.epoch - start < most, f"the migration took more than {most} epochs"
            self.step()
        return self.epoch - start

    def digest(self) -> str:
        """Returns a digest of plans and state."""
        text = json.dumps([plan.to_json() for plan in self.plans]) + repr(sorted(self.cluster.counts().items()))
        return hashlib.sha256(text.encode()).hexdigest()
