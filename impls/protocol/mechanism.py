"""The interfaces of a migration mechanism, and of a store that all workers share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from impls.errors import UsageError
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.report import Report
from impls.protocol.view import View


class WorkerStore(Protocol):
    """What the worker core asks of a worker's store, see `Store`; transactions are LMDB's or offer the same."""

    @property
    def map_bytes(self) -> int:
        """Size of the map that can be full."""

    def begin(self) -> Any:
        """Begins the write transaction."""

    def begin_inner(self, txn: Any) -> Any:
        """Begins a transaction inside the write transaction, which will be taken back; None where there is no such."""

    def reading(self, *, buffers: bool = True) -> AbstractContextManager[Any]:
        """Opens a read transaction on the last commit."""

    def used_bytes(self) -> int:
        """Returns the bytes occupied on this host."""

    def extend_file(self) -> None:
        """Follows every commit of a query with a changelog, see `Store.extend_file`."""

    def close(self) -> None:
        """Lets go of the store."""


class Shared(Protocol):
    """A store in which bins move without their bytes; it holds state, queue, outbox and epoch of every worker."""

    @property
    def address(self) -> str:
        """Where the store is, as a user may read it."""

    @property
    def has_secret(self) -> bool:
        """Whether those who know how it is reached know a password."""

    def check(self) -> None:
        """Raises UsageError when the store cannot be used."""

    def open(self, query: str, worker: int, report: Report) -> WorkerStore:
        """Opens a worker's store at its last commit; the report takes what the cache does."""

    def begin_anew(self, store: Any, written: WrittenPlan, worker: int, bins: Sequence[int]) -> Any:
        """Begins a transaction of an opened store that deletes the worker's own records and makes new bins its own."""

    def stage(self, txn: Any) -> None:
        """Sends what was written to new bins ahead of the commit, which is the first to show it."""

    def pull(self, written: WrittenPlan, pulls: Iterable[Pull], txn: Any) -> dict[int, int]:
        """Makes a transaction's worker the owner of bins, as of its commit; returns {bin: bytes of its state}."""


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

    def standing(self, view: View) -> tuple[tuple[int, int], ...]:
        """Returns (bin, worker) pairs whose replica is to stay in an epoch without a migration.

        None by default. Workers delete all others, except those that the epoch brings up to date.
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
