"""Pausing what moves: partial pause (Flux, SEEP, StreamCloud), and Order-Unaware, the baseline of the Meces paper.

Both route to the new owners at once and run no record of a moved bin until its state is complete; other bins run on.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from impls.protocol.mechanism import Mechanism, refuse_negative
from impls.protocol.moves import PULL_BUDGET_BYTES, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View


class PartialPause(Mechanism):
    """Affected bins are held for the epoch in which all of them are moved at once; then their queues run."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that pulls everything and holds it for this epoch; see `Mechanism.plan`."""
        plan = pull_plan(view, movable(view).bins)
        return replace(plan, hold=tuple(sorted(pull.bin for pull in plan.pulls)))


@dataclass(frozen=True)
class OrderUnaware(Mechanism):
    """All moved bins are fetched in bin order, whoever needs them, and none is used until the last one has come.

    Attributes:
        pull_budget_bytes: most bytes that each worker pulls in an epoch.
    """

    pull_budget_bytes: int = PULL_BUDGET_BYTES

    def __post_init__(self) -> None:
        refuse_negative("pull_budget_bytes", self.pull_budget_bytes)

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that pulls what the budget allows and holds all until that is the rest."""
        plan = pull_plan(view, np.sort(movable(view).bins), budget_bytes=self.pull_budget_bytes)
        away = np.array([pull.bin for pull in plan.pulls], np.int64)
        if not len(away) or self._fits(view, away, plan.routing[away]):
            return plan
        arrived = np.flatnonzero((view.location == view.routing) & (view.age <= view.epoch - view.started))
        return replace(plan, hold=tuple(np.union1d(away, arrived).tolist()))

    def _fits(self, view: View, bins: NDArray[np.int64], targets: NDArray[np.int32]) -> bool:
        """Returns whether every worker gets all of its bins in this epoch; one bin always comes, however large."""
        several = np.bincount(targets) > 1
        needed = np.bincount(targets, weights=view.size[bins])
        return not bool((several & (needed > self.pull_budget_bytes)).any())


MECHANISMS = {"partial-pause": PartialPause, "order-unaware": OrderUnaware}
