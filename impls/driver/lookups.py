"""`get`, `get_many` and `state` of a query that runs, for its user and for other processes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol, Self

from impls.driver.checkpoint import Checkpoint
from impls.driver.control import Lent
from impls.driver.driver import Driver
from impls.driver.keystate import KeyState
from impls.errors import UsageError
from impls.worker.query import QuerySpec


class StateCut(Protocol):
    """The state of all keys at the end of one epoch, see `impls.reading.cuts.Cut`; a context manager."""

    @property
    def epoch(self) -> int:
        """The epoch."""

    @property
    def queued(self) -> int:
        """Number of records that the cut does not have yet, as their bins were on their way."""

    def to_pandas(self, *, scratch: str | None = None) -> Any:
        """Returns all rows as a DataFrame of pandas."""

    def to_spark(self, session: Any, *, partitions: int | None = None, scratch: str | None = None) -> Any:
        """Returns all rows as a DataFrame of Spark, which its tasks read."""

    def close(self) -> None:
        """Lets the query delete the files again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class StateReads(Protocol):
    """Reads the state of a query that runs, see `impls.reading.points`."""

    def get_many(self, keys: Iterable[Any]) -> list[KeyState]:
        """Returns the state of keys, in their order."""

    def as_json(self, key: str) -> dict[str, Any]:
        """Returns the state of a key that is given as a user writes it, as JSON values."""

    def cut(self) -> StateCut:
        """Returns the state of all keys at the end of the last epoch."""

    def lend(self) -> Lent:
        """Returns what keeps the files of a cut for a reader in another process."""


def state_reads(driver: Driver, checkpoint: Checkpoint, spec: QuerySpec, in_sql: Callable[[str], int]) -> StateReads:
    """Returns what reads the state of a query: it stands above this package, and is loaded by its name.

    Args:
        driver: the query's.
        checkpoint: the query's.
        spec: what is constant for its life.
        in_sql: returns the value of an expression of Spark SQL, for operators with a `bin_sql` of their own.

    Raises:
        UsageError: the checkpoint does not say how state is read, or workers share a store.
    """
    reader = import_module("impls.reading.points").PointReader
    reads: StateReads = reader(driver, checkpoint, spec, in_sql)
    return reads


class Looked(ABC):
    """A query whose state can be looked at, key by key and whole, while it runs.

    Args:
        reads: makes what reads it; None where nothing can.
    """

    def __init__(self, reads: Callable[[], StateReads] | None):
        self._make_reads = reads
        self._reads: StateReads | None = None

    @abstractmethod
    def ended(self, timeout_s: float) -> bool:
        """Waits until the query has ended for any reason, and returns whether it has ended."""

    def get(self, key: Any) -> KeyState:
        """Returns the state of a key as the last commit of the worker that has it has left it.

        The query is not disturbed, and nothing waits for it. A key is what the query's key column has, or a tuple, a
        dictionary or a Row of the grouping columns; the only one may be given as it is. What has a time to live is left
        out when it has expired. Records that wait in queues, as their bin is on its way, have not been applied.

        Raises:
            UsageError: the key is of another type than the query's, or the query has ended; or the key or its state is
                too large for another host to hand out.
            StateError: the worker's state could not be read for some seconds, such as while it is rebuilt.
        """
        return self.get_many([key])[0]

    def get_many(self, keys: Iterable[Any]) -> list[KeyState]:
        """Returns the state of keys, in their order, each as `get` does.

        All are of one moment only where they have one worker, and are so few that its host is asked once.

        Raises what `get` raises.
        """
        return self._reading().get_many(keys)

    def state(self) -> StateCut:
        """Returns the state of all keys at the end of the last epoch, while records go on and bins move.

        It is the same epoch at every worker, and no worker does anything for it: the cut is read from snapshots and
        changelog, which stay until a `with` statement or `close` closes it, or nobody has it any more. 16 cuts may be
        open. It outlives the query, until the next start on the checkpoint.

        Raises UsageError where no epoch has ended, the query keeps no changelog or has ended, or 16 cuts are open.
        """
        return self._reading().cut()

    def answer_state(self, request: dict[str, Any]) -> dict[str, Any] | Lent | None:
        """Answers a request of another process for a key's state or a cut, None for one about something else."""
        match request["do"]:
            case "state":
                return self._reading().as_json(str(request["key"]))
            case "cut":
                return self._reading().lend()
        return None

    def _reading(self) -> StateReads:
        if self.ended(0):
            raise UsageError("The query has ended: impls.read_state reads its state from the checkpoint.")
        if self._reads is None:
            if self._make_reads is None:
                raise UsageError("The state of this query cannot be looked at.")
            self._reads = self._make_reads()
        return self._reads
