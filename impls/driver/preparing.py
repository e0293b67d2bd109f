"""What a start has beside the journals: files that it writes when nothing refuses it any more, what it follows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Preparation:
    """Files beside the journals, each of which is written where it can no longer outlive a start that is refused.

    Attributes:
        files: called with whether the checkpoint has a plan, when all else is checked and the query is about to start;
            without a plan nobody has read what an earlier start wrote, so it is written anew. Raises UsageError.
        first: called before the first epoch of this start; raises UsageError or StateError, which ends the query.
        follow: lets the watermark follow the query whose results are the input; called with the driver, with what says
            how far an epoch and all before it have read, and with what numbers the input's partitions. None where the
            watermark goes by the input's times.
    """

    files: Callable[[bool], None] = _nothing
    first: Callable[[], None] = _nothing
    follow: Callable[[Any, Callable[[int], Any], Callable[[str, int], Any]], None] | None = None


NOTHING = Preparation()
