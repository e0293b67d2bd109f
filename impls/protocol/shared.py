"""What a store that all workers share has to offer instead of an environment per worker."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from impls.protocol.plan import Pull

if TYPE_CHECKING:
    from impls.protocol.report import Report
    from impls.worker.opening import Opened
    from impls.worker.order import StepOrder

__all__ = ["Shared", "WorkerStore"]


class WorkerStore(Protocol):
    """What the worker core asks of a worker's store, see `Store`; transactions are LMDB's or offer the same."""

    @property
    def map_bytes(self) -> int:
        """Size of the map that can be full."""

    def begin(self) -> Any:
        """Begins the write transaction."""

    def reading(self, *, buffers: bool = True) -> AbstractContextManager[Any]:
        """Opens a read transaction on the last commit."""

    def used_bytes(self) -> int:
        """Returns the bytes occupied on this host."""

    def cover(self) -> None:
        """Follows every commit of a query with a changelog, see `Store.cover`."""

    def close(self) -> None:
        """Lets go of the store."""


class Shared(Protocol):
    """A store in which bins move without their bytes; it holds state, queue, outbox and epoch of every worker."""

    def check(self) -> None:
        """Raises UsageError when the store cannot be used."""

    def open(self, order: "StepOrder", worker: int, report: "Report") -> "Opened":
        """Opens a worker's state of the epoch before, or of this epoch if that is committed; StateError for neither."""

    def pull(self, order: "StepOrder", pulls: Iterable[Pull], txn: Any) -> dict[int, int]:
        """Makes a transaction's worker the owner of bins, as of its commit; returns {bin: bytes of its state}."""
