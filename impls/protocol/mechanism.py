"""The interface of a migration mechanism."""

from abc import ABC, abstractmethod

from impls.errors import UsageError
from impls.protocol.plan import EpochPlan
from impls.protocol.shared import Shared
from impls.protocol.view import View

__all__ = ["Mechanism", "refuse_below_one", "refuse_negative", "refuse_unless_share"]


class Mechanism(ABC):
    """plan(view) is called once an epoch while a migration is under way; otherwise the last routing is repeated.

    The same View gives the same plan: no Spark, clock, randomness, files, logging or state of its own, so that a
    mechanism survives a driver crash and runs unchanged in the simulator. Options are constructor arguments.
    """

    @property
    def replicates(self) -> bool:
        """Whether it needs replicas, and so a changelog to feed them from."""
        return False

    @property
    def shared(self) -> Shared | None:
        """The store that all workers share; None, as usual, when each has an environment of its own."""
        return None

    @abstractmethod
    def plan(self, view: View) -> EpochPlan:
        """Returns the plan of epoch `view.epoch`; raises nothing for a valid view."""

    def replicas(self, view: View) -> tuple[tuple[int, int], ...]:
        """Returns (bin, worker) pairs whose replica is brought up to date in an epoch without a migration.

        None by default. While a migration is under way, `plan` says it.
        """
        return ()


def refuse_below_one(name: str, value: int) -> None:
    """Raises UsageError for an option below 1."""
    if value < 1:
        raise UsageError(f"{name} must be at least 1, not {value}.")


def refuse_unless_share(name: str, value: float) -> None:
    """Raises UsageError for an option below 0 or above 1."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} must be between 0 and 1, not {value}.")


def refuse_negative(name: str, value: int) -> None:
    """Raises UsageError for an option below 0."""
    if value < 0:
        raise UsageError(f"{name} cannot be negative, not {value}.")
