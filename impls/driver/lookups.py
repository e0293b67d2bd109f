"""`get` and `get_many` of a query that runs, for its user and for other processes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.keystate import KeyState
from impls.errors import UsageError
from impls.operators.base import Operator


class PointReads(Protocol):
    """Reads the state of keys wherever their bins are, see `impls.reading.points`."""

    def get_many(self, keys: Iterable[Any]) -> list[KeyState]:
        """Returns the state of keys, in their order."""

    def as_json(self, key: str) -> dict[str, Any]:
        """Returns the state of a key that is given as a user writes it, as JSON values."""


def point_reads(
    driver: Driver, checkpoint: Checkpoint, operator: Operator, state_dir: str, in_sql: Callable[[str], int]
) -> PointReads:
    """Returns what reads the state of a query's keys: it stands above this package, and is loaded by its name.

    Args:
        driver: the query's.
        checkpoint: the query's.
        operator: the one with which it began.
        state_dir: folder of the workers' environments.
        in_sql: returns the value of an expression of Spark SQL, for operators with a `bin_sql` of their own.

    Raises:
        UsageError: the checkpoint does not say how state is read, or workers share a store.
    """
    reader = import_module("impls.reading.points").PointReader
    reads: PointReads = reader(driver, checkpoint, operator, state_dir, in_sql)
    return reads


class Looked(ABC):
    """A query whose state can be looked at, key by key, while it runs.

    Args:
        reads: makes what reads it; None where nothing can.
    """

    def __init__(self, reads: Callable[[], PointReads] | None):
        self._make_reads = reads
        self._reads: PointReads | None = None

    @abstractmethod
    def ended(self, timeout_s: float) -> bool:
        """Waits until the query has ended for any reason, and returns whether it has ended."""

    def get(self, key: Any) -> KeyState:
        """Returns the state of a key as the last commit of the worker that has it has left it.

        The query is not disturbed, and nothing waits for it. A key is what the query's key column has, or a tuple, a
        dictionary or a Row of the grouping columns; the only one may be given as it is. What has a time to live is left
        out when it has expired. Records that wait in queues, as their bin is on its way, have not been applied.

        Raises:
            UsageError: the key is of another type than the query's, or the query has ended.
            StateError: the worker's state could not be read for some seconds, such as while it is rebuilt.
        """
        return self.get_many([key])[0]

    def get_many(self, keys: Iterable[Any]) -> list[KeyState]:
        """Returns the state of keys, in their order, each as `get` does: at one moment only where they have one worker.

        Raises what `get` raises.
        """
        return self._reading().get_many(keys)

    def answer_state(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Answers a request of another process for a key's state, None for one about something else."""
        return self._reading().as_json(str(request["key"])) if request["do"] == "state" else None

    def _reading(self) -> PointReads:
        if self.ended(0):
            raise UsageError("The query has ended: impls.read_state reads its state from the checkpoint.")
        if self._reads is None:
            if self._make_reads is None:
                raise UsageError("The state of this query cannot be looked at.")
            self._reads = self._make_reads()
        return self._reads
