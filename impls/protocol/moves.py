"""The common part of mechanisms: which bins may move in an epoch, and the plan that moves some of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.protocol.plan import EpochPlan, Pull
from impls.protocol.view import View

# By each worker in an epoch, 50 ms for counts; one default for all that have a budget, so that they compare.
PULL_BUDGET_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Moves:
    """Bins that may be pulled in an epoch, and from and to which worker; continued moves first, then ascending bins."""

    bins: NDArray[np.intp]
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]


def continued(view: View) -> NDArray[np.intp]:
    """Returns the bins that are under way, ascending: routed to a worker that has not got their state yet."""
    return np.flatnonzero(view.location != view.routing)


def after_others(plan: Callable[[Any, View], EpochPlan]) -> Callable[[Any, View], EpochPlan]:
    """Makes a `Mechanism.plan` that moves nothing else while bins are on their way that another mechanism has moved."""

    @wraps(plan)
    def planned(mechanism: Any, view: View) -> EpochPlan:
        left = continued(view)
        return pull_plan(view, left) if len(left) else plan(mechanism, view)

    return planned


def movable(view: View) -> Moves:
    """Returns every move that the epoch allows.

    A bin under way completes its move to where it is routed, also when the goal has changed. Another misplaced bin goes
    to its goal unless it has a queue: then it waits one epoch, in which its owner works the queue off.
    """
    free = (view.location == view.routing) & (view.location != view.goal) & (view.queued == 0)
    bins = np.concatenate([continued(view), np.flatnonzero(free)])
    return Moves(bins, view.location[bins], _targets(view, bins))


def hottest_first(view: View, bins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Returns bins by the rates of their records, highest first, equal ones ascending."""
    ordered: NDArray[np.intp] = bins[np.lexsort((bins, -view.rate[bins]))]
    return ordered


def pull_plan(view: View, bins: NDArray[Any], *, budget_bytes: int | None = None, on_demand: bool = False) -> EpochPlan:
    """Returns the plan that pulls `bins`, a part of `movable(view).bins`, in the order given, and moves nothing else.

    Bins under way that are not among them are held, unless pulls are on demand.
    """
    targets = _targets(view, bins)
    routing = view.routing.copy()
    routing[bins] = targets
    columns = (bins.tolist(), view.location[bins].tolist(), targets.tolist())
    waiting = () if on_demand else tuple(np.setdiff1d(continued(view), bins).tolist())
    pulls = tuple(Pull(*row) for row in zip(*columns, strict=True))
    return EpochPlan(routing, pulls, budget_bytes, on_demand, hold=waiting)


def _targets(view: View, bins: NDArray[Any]) -> NDArray[np.int32]:
    routing = view.routing[bins]
    targets: NDArray[np.int32] = np.where(view.location[bins] != routing, routing, view.goal[bins])
    return targets
