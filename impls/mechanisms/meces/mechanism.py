"""Meces (Gu et al., USENIX ATC 2022): routing switches at once, state is fetched in the order in which it is needed."""

from dataclasses import dataclass, replace

from impls.protocol.mechanism import Mechanism, refuse_negative, refuse_unless_share
from impls.protocol.moves import PULL_BUDGET_BYTES, hottest_first, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View


@dataclass(frozen=True)
class Meces(Mechanism):
    """Bins are pulled on demand, those with most records first; the rest of the budget pulls others, hottest first.

    Attributes:
        pull_budget_bytes: most bytes that each worker pulls in an epoch.
        background_share: part of the budget for bins that no record of the epoch needs, 0 to 1.
    """

    pull_budget_bytes: int = PULL_BUDGET_BYTES
    background_share: float = 1.0

    def __post_init__(self) -> None:
        refuse_negative("pull_budget_bytes", self.pull_budget_bytes)
        refuse_unless_share("background_share", self.background_share)

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that routes everything to its goal and pulls on demand; see `Mechanism.plan`."""
        bins = hottest_first(view, movable(view).bins)
        plan = pull_plan(view, bins, budget_bytes=self.pull_budget_bytes, on_demand=True)
        return replace(plan, background_bytes=int(self.pull_budget_bytes * self.background_share))


MECHANISMS = {"meces": Meces}
