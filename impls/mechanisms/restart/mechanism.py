"""Stop, start, restore: what one has to do without live migration, on this project's own state."""

from dataclasses import replace
from typing import ClassVar

from impls.protocol.mechanism import Mechanism
from impls.protocol.moves import continued, movable, pull_plan
from impls.protocol.plan import EpochPlan, Stop
from impls.protocol.view import View


class QueryRestart(Mechanism):
    """The query is stopped between two epochs and started; new owners then restore their bins from the checkpoint."""

    what: ClassVar[Stop] = "query"

    def plan(self, view: View) -> EpochPlan:
        """Returns a stop once all bins are at rest, and after it the pulls of all of them; see `Mechanism.plan`."""
        under_way = continued(view)
        if len(under_way) or view.queued.any() or not len(view.misplaced):
            return pull_plan(view, under_way)
        if view.stopped < view.started:
            return replace(pull_plan(view, under_way), stop=self.what)
        return replace(pull_plan(view, movable(view).bins), from_checkpoint=True)


class ApplicationRestart(QueryRestart):
    """The application is stopped and started, with its JVM; new owners then restore their bins from the checkpoint."""

    what: ClassVar[Stop] = "application"


MECHANISMS = {"runtime-restart": QueryRestart, "restart-application": ApplicationRestart}
