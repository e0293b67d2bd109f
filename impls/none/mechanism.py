"""No migration: the control in every figure."""

from impls.mechanism import Mechanism
from impls.runtime.plan import EpochPlan
from impls.runtime.view import View

__all__ = ["MECHANISMS", "NoMigration"]


class NoMigration(Mechanism):
    """Nothing ever moves; a command given to it is never fulfilled."""

    def plan(self, view: View) -> EpochPlan:
        """Returns the last routing; see `Mechanism.plan`."""
        return EpochPlan(view.routing)


MECHANISMS = {"none": NoMigration}
