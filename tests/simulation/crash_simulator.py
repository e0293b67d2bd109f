"""A query without Spark whose driver dies: an epoch is a function call, everything follows from one seed."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from dictionaries import DROP_ENTRIES, KEYS_PER_BIN, Cluster, Record

from impls.driver.base import Base
from impls.protocol.controller import Controller
from impls.protocol.events import Command
from impls.protocol.mechanism import Mechanism
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.view import Observation, View


class OnDemand(Mechanism):
    """Routes everything to its goal at once and pulls what records need, `budget` bytes per worker and epoch."""

    def __init__(self, budget: int = 100):
        self.budget = budget

    def plan(self, view: View) -> EpochPlan:
        free = (view.location == view.routing) & (view.queued == 0)
        routing = np.where(free, view.goal, view.routing).astype(np.int32)
        away = np.flatnonzero(routing != view.location).tolist()
        pulls = tuple(Pull(b, int(view.location[b]), int(routing[b])) for b in away)
        return EpochPlan(routing, pulls, self.budget, on_demand=True)


@lru_cache(maxsize=10_000)
def read(kind: Any, line: str) -> tuple[dict[str, Any], Any]:
    """A line of a log as fields and as an entry, whose array nobody may change: every crash reads all lines again."""
    fields = json.loads(line)
    entry = kind.from_json(fields)
    if kind is WrittenPlan:
        entry.plan.routing.setflags(write=False)
    return fields, entry


@dataclass
class Simulation:
    """One query: commands at epochs, records from the seed, and, if asked for, driver crashes.

    `given[epoch]` makes the goals of the commands that are accepted before that epoch is planned. `crash` and `rebase`
    are the odds of a driver crash at each point where one matters, and of a new base at the end of an epoch.
    """

    assignment: Any
    mechanism: Mechanism
    given: dict[int, list[Callable[[Any], Any]]]
    seed: int = 1
    crash: float = 0.0
    restart_assignment: Any = None
    rebase: float = 0.0

    def __post_init__(self) -> None:
        self.random, self.faults = np.random.default_rng(self.seed), np.random.default_rng(self.seed + 1)
        self.cluster = Cluster(np.random.default_rng(self.seed + 2))
        self.controller = Controller(self.assignment, self.mechanism, drop_entries=DROP_ENTRIES)
        self.logs: dict[str, list[str]] = {"plans": [], "observed": [], "commands": []}
        self.truth: dict[int, int] = defaultdict(int)
        self.events: list[Any] = []
        self.sent = self.epoch = self.crashes = self.stops = 0
        self.base: tuple[int, dict[str, Any]] | None = None
        self.generation = 1
        self._written: WrittenPlan | None = None

    def run(self, epochs: int) -> "Simulation":
        for _ in range(epochs):
            for make in self.given.get(self.epoch, []):
                self._accept(make(self.controller.commanded))
            self._one_epoch(self._records())
            self.cluster.check_owners(self.controller)
            self.epoch += 1
        return self

    def _records(self) -> list[Record]:
        if self.random.random() < 0.2:
            return []  # idle input
        keys = self.random.integers(0, len(self.assignment) * KEYS_PER_BIN, self.random.integers(1, 60)).tolist()
        for key in keys:
            self.truth[key] += 1
        self.sent += len(keys)
        return list(zip(keys, range(self.sent - len(keys), self.sent), strict=True))

    def _accept(self, goal: Any) -> None:
        number = len(self.logs["commands"])
        command = Command(f"c{number}", "rebalance", goal.astype(np.int32), f"command {number}", self.epoch)
        self.logs["commands"].append(json.dumps(command.to_json()))
        self.controller.accept(command)

    def _one_epoch(self, records: list[Record]) -> None:
        while True:
            written = self._plan()
            if written.plan.stop is not None:
                if self._maybe_crash():
                    continue  # crashed before the stop was noted: it is done again
                self._log("observed", Observation(self.epoch, stopped=True))
                self.controller.observe(Observation(self.epoch, stopped=True))
                self.stops += 1
                self._written = None
                self._maybe_crash()
                continue
            if self.epoch == 0 and self.cluster.done < 0:
                self.cluster.create(written.plan.routing)
            self._maybe_crash()
            written = self._plan()
            seen = self.cluster.epoch(written, records)
            self._log("observed", seen)
            events = self.controller.observe(Observation.from_json(json.loads(json.dumps(seen.to_json()))))
            if self._rebase_or_crash():
                continue  # observed, but Spark has not committed the epoch: it is run again
            self.events += [event.to_json() for event in events]
            self._written = None
            return

    def _plan(self) -> WrittenPlan:
        if self._written is None:
            written = self.controller.plan(self.epoch, self.generation)
            self._log("plans", written)
            self._written = WrittenPlan.from_json(json.loads(json.dumps(written.to_json())))
        return self._written

    def _log(self, name: str, entry: Any) -> None:
        self.logs[name].append(json.dumps(entry.to_json()))

    def _rebase_or_crash(self) -> bool:
        if self.faults.random() < self.rebase:
            self.base = self.epoch, json.loads(json.dumps(self.controller.to_json()))
        before = self.controller
        crashed = self._maybe_crash()
        same = not crashed or self.controller.to_json() == before.to_json()
        assert same, f"a driver that died after epoch {self.epoch} knows something else"
        return crashed

    def _maybe_crash(self) -> bool:
        """Replaces the controller by one that knows only base and logs, as a new driver does."""
        if self.faults.random() >= self.crash:
            return False
        self.crashes += 1
        self.generation += 1
        self.controller = self._replayed(None)
        if self.base is not None:
            shorter = self._replayed(Base("q", *self.base))
            assert shorter.to_json() == self.controller.to_json(), f"the base of epoch {self.base[0]} tells otherwise"
            self.controller = shorter
        last = read(WrittenPlan, self.logs["plans"][-1])[1] if self.logs["plans"] else None
        usable = last is not None and last.epoch == self.epoch and last.plan.stop is None
        self._written = last if usable else None
        if usable and last is not None and self.controller.observed < self.epoch:
            self.controller.adopt(last)
        return True

    def _replayed(self, base: Base | None) -> Controller:
        def entries(log: str, name: str, kind: Any) -> list[Any]:
            found = [read(kind, line) for line in self.logs[log]]
            return [entry for fields, entry in found if base is None or base.keeps(name, fields)]

        begin = self.assignment if self.restart_assignment is None else self.restart_assignment
        controller = Controller(begin, self.mechanism, drop_entries=DROP_ENTRIES)
        if base is not None:
            controller.restore(base.controller)
        controller.replay(
            entries("plans", "plan", WrittenPlan),
            entries("observed", "observed", Observation),
            entries("commands", "commands", Command),
        )
        return controller

    def counts(self) -> dict[int, int]:
        """Count per key at the bins' owners, queued records left out."""
        return self.cluster.counts(self.controller.location)

    def digest(self) -> str:
        """Digest of all plans, observations, events and counts."""
        whole = json.dumps([self.logs, self.events, sorted(self.counts().items())], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()
