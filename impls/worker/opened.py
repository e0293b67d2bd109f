"""A worker's opened environment, the check that it belongs to the worker and the epoch, and why it is not trusted."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from impls.errors import StateError
from impls.protocol.shared import WorkerStore
from impls.store.lock import WriterLock
from impls.store.meta import Meta
from impls.worker.query import Task

__all__ = ["Cause", "Opened", "Untrusted", "check_owner"]


class Cause(Enum):
    """What is wrong with an environment."""

    MISSING = "missing"
    STALE = "stale"
    DAMAGED = "damaged"
    HELD = "held by another process that does not end"
    DEADLY = "two attempts died in it"


@dataclass(frozen=True, slots=True)
class Untrusted:
    """A cause with what was found; as text it is the reason that a report gives."""

    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause.value}: {self.detail}" if self.detail else self.cause.value


@dataclass
class Opened:
    """A worker's environment at the beginning of an epoch.

    Attributes:
        store: the open environment.
        lock: held by the one attempt that may write; None where a commit refuses all but one.
        meta: what the environment says of itself; its epoch is the one before, or this one.
    """

    store: WorkerStore
    lock: WriterLock | None
    meta: Meta

    def close(self) -> None:
        """Closes the environment and lets go of the lock."""
        self.store.close()
        if self.lock is not None:
            self.lock.close()


def check_owner(meta: Meta, task: Task, path: Path | str) -> None:
    """Refuses state that a newer epoch or driver has written, or that belongs to another query."""
    if meta.query != task.spec.query:
        raise StateError(f"The state in {path} belongs to another query: give this one its own state folder.")
    if meta.epoch > task.epoch or meta.generation > task.order.generation:
        raise StateError(
            f"The state in {path} is at epoch {meta.epoch} of generation {meta.generation}, ahead of epoch "
            f"{task.epoch} of generation {task.order.generation}: this attempt is outdated."
        )
