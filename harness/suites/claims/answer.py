"""What a predicate answers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.suites.claims.evidence import NotKnown

__all__ = ["Answer", "Predicate", "joined"]


@dataclass(frozen=True)
class Answer:
    """Whether a predicate holds, and the figures that say so."""

    holds: bool
    figures: str


Predicate = Callable[..., Answer]


def joined(parts: Iterable[tuple[bool, str]], *, some: bool = False) -> Answer:
    """Joins single findings: all must hold, or with `some` one; those that do not come first.

    Raises:
        NotKnown: there is none.
    """
    found = list(parts)
    if not found:
        raise NotKnown("there is nothing to look at")
    holds = (any if some else all)(ok for ok, _ in found)
    return Answer(holds, "; ".join(text for _, text in sorted(found, key=lambda one: one[0] != some)))
