"""What a start writes for its query beside the journals, and when: only when nothing refuses the start any more."""

from collections.abc import Callable
from dataclasses import dataclass


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Preparation:
    """Files beside the journals, each of which is written where it can no longer outlive a start that is refused.

    Attributes:
        files: called with whether the checkpoint has a plan, when all else is checked and the query is about to start;
            without a plan nobody has read what an earlier start wrote, so it is written anew. Raises UsageError.
        first: called before the first epoch of this start; raises UsageError or StateError, which ends the query.
    """

    files: Callable[[bool], None] = _nothing
    first: Callable[[], None] = _nothing


NOTHING = Preparation()
