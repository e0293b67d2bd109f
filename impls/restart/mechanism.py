"""Stop, start, restore: what one has to do without live migration, on this project's own state."""

from dataclasses import replace

from impls.mechanism import Mechanism
from impls.runtime.moves import continued, movable, pull_plan
from impls.runtime.plan import EpochPlan
from impls.runtime.view import View

__all__ = ["MECHANISMS", "QueryRestart"]


class QueryRestart(Mechanism):
    """The query is stopped between two epochs and started; new owners then restore their bins from the checkpoint."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a stop once all bins are at rest, and after it the pulls of all of them; see `Mechanism.plan`."""
        under_way = continued(view)
        if len(under_way) or view.queued.any() or not len(view.misplaced):
            return pull_plan(view, under_way)
        if view.stopped < view.started:
            return replace(pull_plan(view, under_way), stop="query")
        return replace(pull_plan(view, movable(view).bins), from_checkpoint=True)


MECHANISMS = {"runtime-restart": QueryRestart}
