"""Why a worker's environment is not trusted, and is rebuilt from the checkpoint."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Cause", "Untrusted"]


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
