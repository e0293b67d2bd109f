"""Stop, move, start: what one has to do without live migration, on this project's own state."""

from dataclasses import replace

from impls.mechanism import Mechanism
from impls.runtime.moves import continued, pull_plan
from impls.runtime.plan import EpochPlan
from impls.runtime.view import View

__all__ = ["MECHANISMS", "QueryRestart"]


class QueryRestart(Mechanism):
    """The query is stopped between two epochs, all misplaced bins are copied to their goal, the query is started."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that stops while anything is misplaced, once all bins are at rest; see `Mechanism.plan`."""
        under_way = continued(view)
        plan = pull_plan(view, under_way)
        if len(under_way) or view.queued.any() or not len(view.misplaced):
            return plan
        return replace(plan, stop="query")


MECHANISMS = {"runtime-restart": QueryRestart}
