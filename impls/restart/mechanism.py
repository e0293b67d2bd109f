"""Stop, move, start: what one has to do without live migration, on this project's own state."""

from impls.mechanism import Mechanism
from impls.runtime.plan import EpochPlan
from impls.runtime.view import View

__all__ = ["MECHANISMS", "QueryRestart"]


class QueryRestart(Mechanism):
    """The query is stopped between two epochs, all misplaced bins are copied to their goal, the query is started."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that stops while anything is misplaced; see `Mechanism.plan`."""
        return EpochPlan(view.routing, stop="query" if len(view.misplaced) else None)


MECHANISMS = {"runtime-restart": QueryRestart}
