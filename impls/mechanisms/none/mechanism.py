"""No migration: the control in every figure."""

from impls.protocol.mechanism import Mechanism
from impls.protocol.moves import continued, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View

__all__ = ["MECHANISMS", "NoMigration"]


class NoMigration(Mechanism):
    """Begins no move, so that a command is never fulfilled; one that another mechanism left half done is completed."""

    def plan(self, view: View) -> EpochPlan:
        """Returns the last routing; see `Mechanism.plan`."""
        return pull_plan(view, continued(view))


MECHANISMS = {"none": NoMigration}
