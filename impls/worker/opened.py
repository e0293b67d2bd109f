"""A worker's opened environment, and why one is not trusted."""

from dataclasses import dataclass
from enum import Enum

from impls.protocol.mechanism import WorkerStore
from impls.store.environment import Meta
from impls.store.lock import WriterLock


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
