"""What a mechanism decides for one epoch, and what the runtime writes down of it.

That is also which moved bins their old owners delete: at most a budget, and none where bins are pulled.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from impls.errors import InvalidPlanError
from impls.protocol.arrays import array_of, text_of
from impls.protocol.eventtime import EpochClock
from impls.protocol.replicas import NO_COPIES, Copies
from impls.protocol.versions import Versions
from impls.protocol.view import View

Stop = Literal["query", "application"]
DROP_ENTRIES = 16_384  # per worker and epoch: the store deletes one by one, 250,000 of hash state in 0.6 s


@dataclass(frozen=True, slots=True, order=True)
class Pull:
    """One bin that its new owner `target` fetches from its old owner `source`."""

    bin: int
    source: int
    target: int


@dataclass(frozen=True)  # without slots, as EpochOrder
class EpochPlan:
    """One epoch's decisions of a mechanism.

    Attributes:
        routing: int32, shape (B,): worker that receives the bin's records in this epoch.
        pulls: bins to fetch, in priority order.
        budget_bytes: most bytes each worker pulls in this epoch (at least one bin is always pulled); None for no limit.
        background_bytes: on demand, most of the budget for bins that nothing needs yet; None for all that is left.
        on_demand: pull first what this epoch's records and queues need; False: pull everything before any record.
        hold: bins whose records are only queued in this epoch.
        copies: replicas to bring up or to run beside their owners.
        stop: end the query (or the whole application) before this epoch and start it; the epoch is then planned again.
        from_replica: pulls take the new owner's replica of the bin and only what has changed since.
        from_checkpoint: pulls read the bins from the checkpoint folder, not from the old owners' environments.
    """

    routing: NDArray[np.int32]
    pulls: tuple[Pull, ...] = ()
    budget_bytes: int | None = None
    on_demand: bool = False
    hold: tuple[int, ...] = ()
    copies: Copies = NO_COPIES
    stop: Stop | None = None
    from_checkpoint: bool = False
    from_replica: bool = False
    background_bytes: int | None = None

    def held_by(self, worker: int) -> set[int]:
        """Returns the bins to hold whose records a worker receives."""
        return {bin_ for bin_ in self.hold if int(self.routing[bin_]) == worker}


@dataclass(frozen=True)
class WrittenPlan:
    """A validated plan with what the runtime derives, as the plan log has it: a re-run of the epoch follows it.

    Attributes:
        epoch: the epoch the plan is for.
        generation: run of the driver that wrote it; grows with every start.
        workers: partitions of the epoch's job: 1 + the highest worker that owns, queues, replicates or drops.
        plan: the mechanism's decisions.
        drops: (bin, worker) pairs whose state the old owner deletes in this epoch; see `drops_within_budget`.
        forgotten: (bin, worker) pairs whose replica the worker deletes in this epoch.
        migrating: a migration is under way in this epoch.
        watermark: event time below which no more records are expected; None without event time, or before there is one.
        versions: the version of the pipeline that each bin runs under; None as long as there is only one.
        clock: the epoch's processing time and more, None where the operator asks for none.
    """

    epoch: int
    generation: int
    workers: int
    plan: EpochPlan
    drops: tuple[tuple[int, int], ...] = ()
    migrating: bool = False
    watermark: int | None = None
    versions: Versions | None = None
    clock: EpochClock | None = None
    forgotten: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary; the routing is base64 of little-endian uint16."""
        values = {name: value for name, value in vars(self).items() if name not in {"plan", "versions", "clock"}}
        values |= {"versions": self.versions.to_json()} if self.versions is not None else {}
        values |= {"clock": self.clock.to_json()} if self.clock is not None else {}
        if not self.forgotten:
            del values["forgotten"]
        if self.watermark is None:
            del values["watermark"]
        routing = text_of(self.plan.routing, "<u2")
        pulls = [[pull.bin, pull.source, pull.target] for pull in self.plan.pulls]
        decided = {name: value for name, value in vars(self.plan).items() if name != "copies"}
        return {**values, **decided, **vars(self.plan.copies), "routing": routing, "pulls": pulls}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "WrittenPlan":
        """Reads what `to_json` wrote."""
        decided = {field.name: data[field.name] for field in fields(EpochPlan) if field.name in data}
        decided["copies"] = Copies(*(tuple(map(tuple, data[name])) for name in ("replicas", "standbys")))
        decided["routing"] = array_of(data["routing"], "<u2").astype(np.int32)
        decided |= {"pulls": tuple(Pull(*pull) for pull in data["pulls"]), "hold": tuple(data["hold"])}
        values = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        values["drops"] = tuple(map(tuple, data["drops"]))
        values["forgotten"] = tuple(map(tuple, data.get("forgotten", ())))
        values["versions"] = Versions.from_json(data["versions"]) if "versions" in data else None
        values["clock"] = EpochClock.from_json(data["clock"]) if "clock" in data else None
        return cls(plan=EpochPlan(**decided), **values)


@dataclass(frozen=True, slots=True)
class Drop:
    """The old copy of a bin at the worker from which it was pulled; `entries` as the store counts them."""

    bin: int
    worker: int
    entries: int

    @property
    def place(self) -> tuple[int, int]:
        """(bin, worker), as a written plan names it."""
        return self.bin, self.worker


def drops_within_budget(pending: Sequence[Drop], pulls: Iterable[Pull], budget: int) -> list[Drop]:
    """Returns the drops of an epoch: for each worker those, in order, that fit `budget` entries, at least one.

    An epoch with pulls drops nothing else: its records would wait for both. But a bin that a worker may pull back in
    this epoch is dropped even beyond the budget, because a later drop would also delete the new state.
    """
    back = {(pull.bin, pull.target) for pull in pulls}
    if back:
        return [drop for drop in pending if drop.place in back]
    left: dict[int, int] = {}
    chosen = []
    for drop in pending:
        room = left.get(drop.worker)
        if room is None or drop.entries <= room:
            chosen.append(drop)
            left[drop.worker] = max(0, (budget if room is None else room) - drop.entries)
    return chosen


def validate(plan: EpochPlan, view: View) -> None:
    """Raises InvalidPlanError that names the rule and the bin when a plan breaks a rule for its view."""
    _routing(plan, view)
    if plan.stop is not None:
        _stop(plan, view)
        return
    changed = np.flatnonzero(plan.routing != view.routing)
    _none(changed[view.queued[changed] > 0], "queue", "has queued records and is routed away")
    _none(changed[view.location[changed] != view.routing[changed]], "reroute", "is rerouted before its state has come")
    pulled = _pulls(plan, view)
    _sets(plan, view)
    if not plan.on_demand:
        away = plan.routing != view.location
        away[pulled] = False
        away[np.array(plan.hold, np.int64)] = False
        _none(np.flatnonzero(away), "state", "is routed away from its state, neither pulled nor held")


def _none(bins: NDArray[np.intp], rule: str, what: str) -> None:
    if len(bins):
        raise InvalidPlanError(f"rule {rule}: bin {int(bins[0])} {what}")


def _routing(plan: EpochPlan, view: View) -> None:
    if plan.routing.shape != view.routing.shape or plan.routing.dtype != np.int32:
        raise InvalidPlanError(
            f"rule routing: it must be int32 for {view.bins} bins, not {plan.routing.dtype}{plan.routing.shape}"
        )
    _none(np.flatnonzero((plan.routing < 0) | (plan.routing >= view.workers)), "routing", "has no worker")


def _stop(plan: EpochPlan, view: View) -> None:
    if plan.stop not in {"query", "application"}:
        raise InvalidPlanError(f"rule stop: {plan.stop!r} is unknown")
    if view.stopped == view.epoch:
        raise InvalidPlanError(f"rule stop: the query was stopped before epoch {view.epoch} already")
    if plan.pulls or plan.hold or plan.copies.all or plan.from_checkpoint:
        raise InvalidPlanError("rule stop: a plan that stops may ask for nothing else")
    _none(np.flatnonzero(plan.routing != view.routing), "stop", "is rerouted in a plan that stops")


def _pulls(plan: EpochPlan, view: View) -> NDArray[np.int64]:
    if plan.budget_bytes is not None and plan.budget_bytes < 0:
        raise InvalidPlanError(f"rule budget: {plan.budget_bytes} bytes is below 0")
    if plan.background_bytes is not None and (not plan.on_demand or plan.background_bytes < 0):
        raise InvalidPlanError(f"rule budget: {plan.background_bytes} background bytes: give 0 or more, on demand")
    bins = np.array([pull.bin for pull in plan.pulls], np.int64)
    _in_range(bins, view, "pull")
    _once(bins, "pull")
    for pull in plan.pulls:
        if pull.source != view.location[pull.bin]:
            raise InvalidPlanError(
                f"rule pull: bin {pull.bin} is pulled from worker {pull.source} but is at {view.location[pull.bin]}"
            )
        if pull.target != plan.routing[pull.bin]:
            raise InvalidPlanError(
                f"rule pull: bin {pull.bin} is pulled to worker {pull.target} but routed to {plan.routing[pull.bin]}"
            )
        if pull.source == pull.target:
            raise InvalidPlanError(f"rule pull: bin {pull.bin} is pulled to where it is")
    return bins


def _sets(plan: EpochPlan, view: View) -> None:
    hold = np.array(plan.hold, np.int64)
    _in_range(hold, view, "hold")
    _once(hold, "hold")
    plan.copies.check(view, plan.routing, plan.hold)
    if plan.from_replica:
        without = [pull.bin for pull in plan.pulls if (pull.bin, pull.target) not in view.replicas]
        _none(np.array(without, np.intp), "replica", "is pulled from a replica that its new owner does not have")


def _in_range(bins: NDArray[np.int64], view: View, rule: str) -> None:
    outside = bins[(bins < 0) | (bins >= view.bins)]
    if len(outside):
        raise InvalidPlanError(f"rule {rule}: bin {int(outside[0])} does not exist")


def _once(bins: NDArray[np.int64], rule: str) -> None:
    twice = [bin_ for bin_, number in Counter(bins.tolist()).items() if number > 1]
    if twice:
        raise InvalidPlanError(f"rule {rule}: bin {twice[0]} is named twice")
