"""The real controller, plan validation and mechanisms over dictionaries: a migration in milliseconds, by seed."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
from dictionaries import DROP_ENTRIES, KEYS_PER_BIN, Cluster
from numpy.typing import NDArray

from impls.protocol.controller import Controller
from impls.protocol.events import Command, Event
from impls.protocol.mechanism import Mechanism
from impls.protocol.plan import WrittenPlan
from impls.protocol.view import Observation


@dataclass
class Simulation:
    """Epochs of a seeded load under a mechanism; in `crash_at` the driver is lost and rebuilt from the journals."""

    initial: NDArray[np.int32]
    mechanism: Mechanism
    seed: int
    crash_at: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.controller = Controller(self.initial, self.mechanism, drop_entries=DROP_ENTRIES)
        self.cluster = Cluster(np.random.default_rng(self.seed + 2))
        self.cluster.create(self.initial)
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
        keys = self.random.integers(0, len(self.initial) * KEYS_PER_BIN, int(self.random.integers(0, 40))).tolist()
        sent = self.truth.total()
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
        seen = self.cluster.epoch(written, list(zip(keys, range(sent, sent + len(keys)), strict=True)))
        self.truth.update(keys)
        self.observed.append(Observation.from_json(json.loads(json.dumps(seen.to_json()))))
        self.events += self.controller.observe(seen)
        self.cluster.check_owners(self.controller)
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

    def counts(self) -> dict[int, int]:
        """Count per key at the bins' owners, queued records left out."""
        return self.cluster.counts(self.controller.location)

    def digest(self) -> str:
        """Returns a digest of plans and state."""
        text = json.dumps([plan.to_json() for plan in self.plans]) + repr(sorted(self.counts().items()))
        return hashlib.sha256(text.encode()).hexdigest()
