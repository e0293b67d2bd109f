"""The rules of an epoch plan, which every mechanism must keep."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from impls.errors import InvalidPlanError
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View

__all__ = ["validate"]


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
    if plan.pulls or plan.hold or plan.shadows or plan.replicas or plan.from_checkpoint:
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
    _replicas(plan, view)
    for rule, pairs in (("replica", plan.replicas), ("shadow", plan.shadows)):
        bins = np.array([bin_ for bin_, _ in pairs], np.int64)
        _in_range(bins, view, rule)
        if len(set(pairs)) != len(pairs):
            raise InvalidPlanError(f"rule {rule}: a pair of bin and worker is named twice")
        for bin_, worker in pairs:
            if not 0 <= worker < view.workers:
                raise InvalidPlanError(f"rule {rule}: bin {bin_} names worker {worker}, which does not exist")
            if worker == plan.routing[bin_]:
                raise InvalidPlanError(f"rule {rule}: bin {bin_} names its own owner {worker}")


def _replicas(plan: EpochPlan, view: View) -> None:
    """A pull from a replica needs one; a shadow runs beside an owner that has the bin, and from a replica."""
    if plan.from_replica:
        without = [pull.bin for pull in plan.pulls if (pull.bin, pull.target) not in view.replicas]
        _none(np.array(without, np.intp), "replica", "is pulled from a replica that its new owner does not have")
    if not plan.shadows:
        return
    shadowed = [bin_ for bin_, worker in plan.shadows if (bin_, worker) not in view.replicas]
    _none(np.array(shadowed, np.intp), "shadow", "is processed twice by a worker without a replica of it")
    bins = np.array([bin_ for bin_, _ in plan.shadows], np.int64)
    away = bins[(plan.routing[bins] != view.location[bins]) | np.isin(bins, np.array(plan.hold, np.int64))]
    _none(away, "shadow", "is processed twice but not processed by its owner")


def _in_range(bins: NDArray[np.int64], view: View, rule: str) -> None:
    outside = bins[(bins < 0) | (bins >= view.bins)]
    if len(outside):
        raise InvalidPlanError(f"rule {rule}: bin {int(outside[0])} does not exist")


def _once(bins: NDArray[np.int64], rule: str) -> None:
    twice = [bin_ for bin_, number in Counter(bins.tolist()).items() if number > 1]
    if twice:
        raise InvalidPlanError(f"rule {rule}: bin {twice[0]} is named twice")
