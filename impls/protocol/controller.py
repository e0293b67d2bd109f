"""The controller: commands and observations in, epoch plans out. Pure: no Spark, clock, randomness or files."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.errors import StateError
from impls.protocol.arrays import arrays_from_json, arrays_to_json
from impls.protocol.changing import Bins, Changing
from impls.protocol.events import Command, Event, MigrationBegun, MigrationDone, event_from_json
from impls.protocol.eventtime import EventClock
from impls.protocol.mechanism import Mechanism
from impls.protocol.plan import DROP_ENTRIES, Drop, EpochPlan, Pull, WrittenPlan, drops_within_budget, validate
from impls.protocol.replicas import Copies, Pairs, Replicas
from impls.protocol.versions import Change
from impls.protocol.view import BinStatus, EpochTimes, Observation, View

_NEVER = 1 << 30
_RATE_WEIGHT = 0.2
_KNOWN = {"location": "<i4", "queued": "<i8", "size": "<i8"}
_ARRAYS = {**_KNOWN, "routing": "<i4", "goal": "<i4", "moving": "<i4", "_moved": "<i8", "_rate": "<f8"}


class Controller:
    """Per epoch: accept() any commands, plan() or adopt() a written plan, observe(); the same after a stop.

    Attributes:
        routing, location, goal: int32, shape (B,).
        queued, size: int64, shape (B,): records in queue, bytes of state.
        moving: bins that the migration under way moves, none between migrations; pulls: by bin, as the plan has them.
        observed: the last epoch observed, -1 before the first.
        homes: worker -> host of its environment, on a cluster; hosts: those for workers that own nothing, () for any.
        clock: the watermark, for operators with event time; None for the others.
        changing: versions of the pipeline, and which of them each bin runs under.
    """

    def __init__(
        self, initial: NDArray[np.int32], mechanism: Mechanism, clock: EventClock | None = None,
        drop_entries: int = DROP_ENTRIES,
    ):  # fmt: skip
        self.bins, self._mechanism, self.clock, self._drop_entries = len(initial), mechanism, clock, drop_entries
        self.routing, self.location, self.goal = (initial.astype(np.int32) for _ in range(3))
        self.queued, self.size = np.zeros(self.bins, np.int64), np.zeros(self.bins, np.int64)
        self.moving: NDArray[np.intp] = np.empty(0, np.intp)
        self._rate = np.zeros(self.bins)
        self._moved = np.full(self.bins, -_NEVER, np.int64)
        self._times = EpochTimes()
        self._pending: list[Command] = []
        self._current: Command | None = None
        self._started, self._stopped = 0, -1
        self._drops: list[Drop] = []
        self.pulls: dict[int, Pull] = {}
        self._replicas = Replicas()
        self.homes, self.hosts = dict[int, str](), tuple[str, ...]()
        self.changing = Changing(self.bins)
        self._events: list[Event] = []
        self._last_events: list[Event] = []
        self.observed = -1
        self._before = self._status()

    @property
    def replicas(self) -> dict[tuple[int, int], int]:
        """(bin, worker) -> the epoch whose end the worker's replica of the bin shows."""
        return self._replicas.known

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

    @property
    def busy(self) -> bool:
        """Whether epochs should follow each other quickly: a migration or a change of the pipeline is under way."""
        return self.migrating or self.changing.active

    def accept(self, command: Command | Change) -> None:
        """Takes a command, or a change of the pipeline, that holds from its `from_epoch` on."""
        if isinstance(command, Change):
            self.changing.accept(command)
        else:
            self._pending.append(command)

    def view(self, epoch: int) -> View:
        """Returns what a mechanism may know for an epoch."""
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
            replicas=dict(self.replicas),
            last=self._times,
            stopped=self._stopped,
        )

    def plan(self, epoch: int, generation: int, now_ms: int = 0) -> WrittenPlan:
        """Returns the plan of an epoch at a processing time; it holds from now on; raises InvalidPlanError."""
        self._activate(epoch)
        plan = EpochPlan(self.routing.copy())
        forgotten: Pairs = ()
        if self._current is not None:
            view = self.view(epoch)
            plan = self._mechanism.plan(view)
            validate(plan, view)
        elif self.observed >= 0:
            view = self.view(epoch)
            plan = replace(plan, copies=Copies(self._mechanism.replicas(view)))
            plan.copies.check(view, plan.routing, ())
            forgotten = self._replicas.unwanted((*plan.copies.replicas, *self._mechanism.standing(view)))
        now = [] if plan.stop is not None else drops_within_budget(self._drops, plan.pulls, self._drop_entries)
        drops, versions = tuple(sorted(drop.place for drop in now)), self.changing.plan(self._bins(plan))
        moves, workers = self._current is not None, self._workers(plan, forgotten)
        written = WrittenPlan(epoch, generation, workers, plan, drops, moves, versions=versions, forgotten=forgotten)
        if self.clock is not None and plan.stop is None:
            clock = self.clock
            written = replace(written, watermark=clock.watermark, clock=clock.at(now_ms))
        self._hold(written)
        return written

    def _bins(self, plan: EpochPlan) -> Bins:
        """Returns what a change of the pipeline may know; what moves, or waits, does not change."""
        ready = (self.location == self.routing) & (plan.routing == self.routing) & (self.queued == 0)
        ready[[*plan.hold, *(pull.bin for pull in plan.pulls)]] = False
        return Bins(ready, self.location, self.size, plan.stop is None and not plan.copies.standbys)

    def adopt(self, written: WrittenPlan) -> None:
        """Takes over a plan that was written before a crash."""
        self._activate(written.epoch)
        self._hold(written)

    def observe(self, seen: Observation) -> list[Event]:
        """Takes in what an epoch did and returns the migrations that began or ended with it.

        An epoch is run again when the driver dies after it was observed and before Spark has committed it: that changes
        nothing and returns the same. Raises StateError for a pull that the plan does not have.
        """
        if seen.stopped:
            self._activate(seen.epoch)
            self._stopped = seen.epoch
            return []
        if seen.epoch == self.observed:
            return list(self._last_events)
        self._before = self._status()
        entries = dict(zip(seen.pulled, seen.entries, strict=False))
        for bin_ in seen.pulled:
            if bin_ not in self.pulls:
                raise StateError(f"Epoch {seen.epoch} reports a pull of bin {bin_}, which its plan does not have")
            pull = self.pulls.pop(bin_)
            self.location[bin_] = pull.target
            self._moved[bin_] = seen.epoch
            self._drops.append(Drop(bin_, pull.source, entries.get(bin_, 0)))
        self._rate *= 1 - _RATE_WEIGHT
        self._rate[seen.records[0]] += _RATE_WEIGHT * seen.records[1]
        self.queued[:] = 0
        self.queued[seen.queued[0]] = seen.queued[1]
        self.size[seen.sizes[0]] = seen.sizes[1]
        self._times = EpochTimes(seen.epoch_ms, seen.job_ms, seen.pull_ms)
        self._replicas.observe(seen, self.location)
        self.homes |= dict(seen.homes)
        if self.clock is not None:
            self.clock.observe(seen.times, seen.waits, seen.until)
        self.pulls.clear()  # what is left of them is planned anew
        self._events += self.changing.observe(seen)
        self._check_done(seen.epoch)
        self.observed, self._last_events, self._events = seen.epoch, self._events, []
        return list(self._last_events)

    def replay(
        self,
        plans: Sequence[WrittenPlan],
        observations: Iterable[Observation], commands: Iterable[Command | Change],
    ) -> None:  # fmt: skip
        """Rebuilds, from what is durable, the state after the last observation.

        Without a base the first plan's routing is the assignment the query began with, whatever this controller was
        made with; with one, see `restore`, what is given has happened after it. Raises StateError when an observed
        epoch has no plan.
        """
        if plans and self.observed < 0:
            self.routing, self.location, self.goal = (plans[0].plan.routing.copy() for _ in range(3))
        for command in commands:
            self.accept(command)
        written = {plan.epoch: plan for plan in plans if plan.plan.stop is None}
        for seen in observations:
            if not seen.stopped and seen.epoch != self.observed:
                if seen.epoch not in written:
                    raise StateError(f"Epoch {seen.epoch} was observed, but its plan is missing from the plan log")
                self.adopt(written[seen.epoch])
            self.observe(seen)

    def to_json(self) -> dict[str, Any]:
        """Returns all that later epochs depend on, ready for JSON; to be called between two epochs."""
        return {
            "arrays": arrays_to_json(self, _ARRAYS),
            "before": arrays_to_json(self._before, _KNOWN),
            "pending": [command.to_json() for command in self._pending],
            "current": self._current.to_json() if self._current else None,
            "started": self._started,
            "stopped": self._stopped,
            **self._replicas.to_json(),
            "drops": [astuple(drop) for drop in self._drops],
            "times": asdict(self._times),
            "observed": self.observed,
            "homes": [list(pair) for pair in sorted(self.homes.items())],
            "hosts": list(self.hosts),
            "events": [event.to_json() for event in self._events],
            "told": [event.to_json() for event in self._last_events],
            **({} if self.clock is None else {"clock": self.clock.to_json()}),
            **({"changing": self.changing.to_json()} if self.changing.versions else {}),
        }

    def restore(self, data: dict[str, Any]) -> None:
        """Takes over what `to_json` of another controller gave; raises KeyError or ValueError for anything else."""
        for name, array in arrays_from_json(data["arrays"], _ARRAYS, self.bins).items():
            setattr(self, name, array.astype(getattr(self, name).dtype))
        self._before = BinStatus(**arrays_from_json(data["before"], _KNOWN, self.bins))
        self._pending = [Command.from_json(command) for command in data["pending"]]
        self._current = Command.from_json(data["current"]) if data["current"] else None
        self._started, self._stopped = data["started"], data["stopped"]
        self.homes, self.hosts = dict(data.get("homes", ())), tuple(data.get("hosts", ()))
        self._replicas.restore(data)
        self._drops = [Drop(*drop) for drop in data["drops"]]
        self._times, self.observed = EpochTimes(**data["times"]), data["observed"]
        if self.clock is not None:
            self.clock.restore(data["clock"])
        if "changing" in data:
            self.changing.restore(data["changing"])
        self._events, self._last_events = (
            [event_from_json(event) for event in data[name]] for name in ("events", "told")
        )

    def before(self, epoch: int) -> BinStatus:
        """Returns what was known when an epoch began: the next one, or the last one, which is run again."""
        return self._before if epoch == self.observed else self._status()

    def fresh_workers(self, written: WrittenPlan) -> tuple[int, ...]:
        """Returns the workers of a plan that own, queue and drop nothing at its beginning: they may start empty."""
        before = self.before(written.epoch)
        busy = set(before.location.tolist()) | {worker for _, worker in written.drops}
        busy |= {drop.worker for drop in self._drops}
        busy |= set(written.plan.routing[before.queued > 0].tolist())
        return tuple(worker for worker in range(written.workers) if worker not in busy)

    def _status(self) -> BinStatus:
        return BinStatus(self.location.copy(), self.queued.copy(), self.size.copy())

    def _activate(self, epoch: int) -> None:
        """Applies commands from their epoch on, and the last one wins; before the first epoch nothing can move."""
        if self.observed < 0:
            return
        self.changing.activate(epoch)
        while self._pending and self._pending[0].from_epoch <= epoch:
            if self._current is not None:
                self._events.append(MigrationDone(self._current.id, epoch, superseded=True))
            self._current = self._pending.pop(0)
            self.goal, self.hosts = self._current.goal.copy(), self._current.hosts
            self.moving = np.flatnonzero(self.location != self.goal)
            self._started, self._stopped = epoch, -1
            self._events.append(MigrationBegun(self._current.id, self._current.label, epoch, len(self.moving)))

    def _hold(self, written: WrittenPlan) -> None:
        if written.plan.stop is None:
            self.routing = written.plan.routing.copy()
            self.pulls = {pull.bin: pull for pull in written.plan.pulls}
            dropped = set(written.drops)
            self._drops = [drop for drop in self._drops if drop.place not in dropped]
            self._replicas.forget(written.forgotten)
            if self.clock is not None:
                self.clock.hold(written.watermark, written.clock)
            self.changing.hold(written.versions)

    def _workers(self, plan: EpochPlan, forgotten: Pairs) -> int:
        named = [drop.worker for drop in self._drops]
        named += [worker for _, worker in (*plan.copies.all, *forgotten)]
        return 1 + max(int(plan.routing.max()), int(self.location.max()), *named, 0)

    def _check_done(self, epoch: int) -> None:
        settled = np.array_equal(self.location, self.goal) and np.array_equal(self.routing, self.goal)
        if self._current is not None and settled and not self.queued[self.moving].any():
            self._events.append(MigrationDone(self._current.id, epoch))
            self._current = None
            self.moving = np.empty(0, np.intp)
