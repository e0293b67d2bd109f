"""What a store that all workers share has to offer instead of an environment per worker."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from impls.protocol.plan import Pull, WrittenPlan
from impls.protocol.report import Report

__all__ = ["Shared", "WorkerStore"]


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
