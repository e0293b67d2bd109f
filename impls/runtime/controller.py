"""The controller: commands and observations in, epoch plans out. Pure: no Spark, clock, randomness or files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.errors import StateError
from impls.mechanism import Mechanism
from impls.runtime.commands import Command
from impls.runtime.observation import Observation
from impls.runtime.plan import EpochPlan, Pull, WrittenPlan
from impls.runtime.validate import validate
from impls.runtime.view import EpochTimes, View

__all__ = ["Controller", "Event", "MigrationBegun", "MigrationDone"]

_NEVER = 1 << 30
_RATE_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class MigrationBegun:
    """The first epoch of a migration was planned; `bins` are not at their goal."""

    id: str
    label: str
    epoch: int
    bins: int

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of events.jsonl."""
        return {"kind": "migration_begin", "id": self.id, "label": self.label, "epoch": self.epoch, "bins": self.bins}


@dataclass(frozen=True, slots=True)
class MigrationDone:
    """All bins are at their goal and their queues are empty; or a newer command has taken the migration's place."""

    id: str
    epoch: int
    superseded: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the event as a line of events.jsonl."""
        return {"kind": "migration_end", "id": self.id, "epoch": self.epoch, "superseded": self.superseded}


Event = MigrationBegun | MigrationDone


class Controller:
    """Per epoch: accept() any commands, plan() or adopt() a written plan, observe(); relocated() after a stop.

    Attributes:
        routing, location, goal: int32, shape (B,).
        queued, size: int64, shape (B,): records in queue, bytes of state.
        moving: bins that the migration under way moves, empty between migrations.
    """

    def __init__(self, initial: NDArray[np.int32], mechanism: Mechanism):
        self.bins, self._mechanism = len(initial), mechanism
        self.routing, self.location, self.goal = (initial.astype(np.int32) for _ in range(3))
        self.queued, self.size = np.zeros(self.bins, np.int64), np.zeros(self.bins, np.int64)
        self.moving: NDArray[np.intp] = np.empty(0, np.intp)
        self._rate = np.zeros(self.bins)
        self._moved = np.full(self.bins, -_NEVER, np.int64)
        self._times = EpochTimes()
        self._pending: list[Command] = []
        self._current: Command | None = None
        self._started = 0
        self._drops: list[tuple[int, int]] = []
        self._pulls: dict[int, Pull] = {}
        self._events: list[Event] = []
        self._told: list[Event] = []
        self._observed = -1

    @property
    def commanded(self) -> NDArray[np.int32]:
        """The goal of the last command accepted, whether it holds already or not."""
        return self._pending[-1].goal if self._pending else self.goal

    @property
    def misplaced(self) -> int:
        """Number of bins whose state is not at its goal."""
        return int((self.location != self.goal).sum())

    @property
    def migrating(self) -> bool:
        """Whether a command was accepted whose goal is not reached."""
        return bool(self._pending) or self._current is not None

    def accept(self, command: Command) -> None:
        """Takes a command that holds from its `from_epoch` on."""
        self._pending.append(command)

    def view(self, epoch: int) -> View:
        """Returns what a mechanism may know for an epoch."""
        none = np.full(self.bins, -1)
        return View(
            epoch=epoch,
            started=self._started,
            workers=1 + int(max(self.routing.max(), self.location.max(), self.goal.max())),
            routing=self.routing.copy(),
            location=self.location.copy(),
            goal=self.goal.copy(),
            age=np.minimum(epoch - self._moved, _NEVER).astype(np.int32),
            rate=self._rate.copy(),
            queued=self.queued.copy(),
            size=self.size.copy(),
            replica=none.astype(np.int32),
            replica_epoch=none.astype(np.int64),
            last=self._times,
        )

    def plan(self, epoch: int, generation: int) -> WrittenPlan:
        """Returns the epoch's plan, which holds from now on; raises InvalidPlanError for a mechanism's invalid plan."""
        self._activate(epoch)
        plan = EpochPlan(self.routing.copy())
        if self._current is not None:
            view = self.view(epoch)
            plan = self._mechanism.plan(view)
            validate(plan, view)
        drops = () if plan.stop is not None else tuple(sorted(self._drops))
        written = WrittenPlan(epoch, generation, self._workers(plan), plan, drops, self._current is not None)
        self._hold(written)
        return written

    def adopt(self, written: WrittenPlan) -> None:
        """Takes over a plan that was written before a crash."""
        self._activate(written.epoch)
        self._hold(written)

    def observe(self, seen: Observation) -> list[Event]:
        """Takes in what an epoch did and returns the migrations that began or ended with it.

        An epoch is run again when the driver dies after it was observed and before Spark has committed it: that changes
        nothing and returns the same. Raises StateError for a pull that the plan does not have.
        """
        if seen.relocated:
            self.relocated(seen.epoch)
            return []
        if seen.epoch == self._observed:
            return list(self._told)
        for bin_ in seen.pulled:
            if bin_ not in self._pulls:
                raise StateError(f"Epoch {seen.epoch} reports a pull of bin {bin_}, which its plan does not have.")
            pull = self._pulls.pop(bin_)
            self.location[bin_] = pull.target
            self._moved[bin_] = seen.epoch
            self._drops.append((bin_, pull.source))
        self._rate *= 1 - _RATE_WEIGHT
        self._rate[seen.records[0]] += _RATE_WEIGHT * seen.records[1]
        self.queued[:] = 0
        self.queued[seen.queued[0]] = seen.queued[1]
        self.size[seen.sizes[0]] = seen.sizes[1]
        self._times = EpochTimes(seen.epoch_ms, seen.job_ms, seen.pull_ms)
        self._check_done(seen.epoch)
        self._observed, self._told = seen.epoch, self.take_events()
        return list(self._told)

    def relocated(self, epoch: int) -> None:
        """Takes in that all state was moved to the goal while the query was down before an epoch."""
        self._activate(epoch)
        moved = np.flatnonzero(self.location != self.goal)
        self._drops += [(int(b), int(self.location[b])) for b in moved]
        self._moved[moved] = epoch
        self.location, self.routing = self.goal.copy(), self.goal.copy()
        # a copy that was waiting for its drop may now be the bin's state again
        self._drops = [(bin_, worker) for bin_, worker in self._drops if self.location[bin_] != worker]
        self._pulls.clear()
        self._check_done(epoch)

    def take_events(self) -> list[Event]:
        """Returns the events since the last call."""
        events, self._events = self._events, []
        return events

    def replay(
        self, plans: Sequence[WrittenPlan], observations: Iterable[Observation], commands: Iterable[Command]
    ) -> None:
        """Rebuilds, from what is durable, the state after the last observation.

        The first plan's routing is the assignment the query began with, whatever this controller was made with. Events
        after the last observation are returned with the next one: a relocation's end may not have been recorded.
        """
        if plans:
            self.routing, self.location, self.goal = (plans[0].plan.routing.copy() for _ in range(3))
        self._pending = list(commands)
        written = {plan.epoch: plan for plan in plans if plan.plan.stop is None}
        for seen in observations:
            if not seen.relocated and seen.epoch != self._observed:
                self.adopt(written[seen.epoch])
            self.observe(seen)

    def fresh_workers(self, written: WrittenPlan) -> tuple[int, ...]:
        """Returns the workers of a plan that own, queue and drop nothing at its beginning: they may start empty."""
        busy = set(self.location.tolist()) | {worker for _, worker in written.drops}
        busy |= set(written.plan.routing[self.queued > 0].tolist())
        return tuple(worker for worker in range(written.workers) if worker not in busy)

    def _activate(self, epoch: int) -> None:
        """Lets commands hold whose time has come, the last one wins; before the first epoch nothing can move."""
        if self._observed < 0:
            return
        while self._pending and self._pending[0].from_epoch <= epoch:
            if self._current is not None:
                self._events.append(MigrationDone(self._current.id, epoch, superseded=True))
            self._current = self._pending.pop(0)
            self.goal = self._current.goal.copy()
            self.moving = np.flatnonzero(self.location != self.goal)
            self._started = epoch
            self._events.append(MigrationBegun(self._current.id, self._current.label, epoch, len(self.moving)))

    def _hold(self, written: WrittenPlan) -> None:
        if written.plan.stop is None:
            self.routing = written.plan.routing.copy()
            self._pulls = {pull.bin: pull for pull in written.plan.pulls}
            self._drops = [drop for drop in self._drops if drop not in set(written.drops)]

    def _workers(self, plan: EpochPlan) -> int:
        named = [worker for _, worker in (*self._drops, *plan.replicas, *plan.shadows)]
        return 1 + max(int(plan.routing.max()), int(self.location.max()), *named, 0)

    def _check_done(self, epoch: int) -> None:
        settled = np.array_equal(self.location, self.goal) and np.array_equal(self.routing, self.goal)
        if self._current is not None and settled and not self.queued[self.moving].any():
            self._events.append(MigrationDone(self._current.id, epoch))
            self._current = None
            self.moving = np.empty(0, np.intp)
