"""No migration: the control in every figure."""

from impls.protocol.mechanism import Mechanism
from impls.protocol.moves import continued, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View


class NoMigration(Mechanism):
    """Begins no move, so a command never completes; it finishes moves that another mechanism left half done."""

    def plan(self, view: View) -> EpochPlan:
        """Returns the last routing; see `Mechanism.plan`."""
        return pull_plan(view, continued(view))


MECHANISMS = {"none": NoMigration}
