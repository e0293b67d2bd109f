"""The blobs that wait for a worker's next turn, and how many of each router it has committed."""

from collections import deque
from collections.abc import Sequence

from impls.errors import StateError
from impls.realtime.blobs import Blob

__all__ = ["Intake"]

_RECORDS = 32_768  # of one turn at most: what waits is worked off in turns that others can see


class Intake:
    """put() as blobs come; next() for a turn, then count() when it is committed, or give_back().

    Attributes:
        applied: by router, the number of its last blob that is committed.
    """

    def __init__(self, worker: int):
        self._worker = worker
        self._waiting: deque[Blob] = deque()
        self.applied: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, blobs: Sequence[Blob]) -> None:
        """Takes blobs in the order in which they came."""
        self._waiting += blobs

    def has(self, tick: int) -> bool:
        """Returns whether the next blob is of a tick, or of an earlier one."""
        return bool(self._waiting) and self._waiting[0].tick <= tick

    def next(self, tick: int, window: int = 2 * _RECORDS) -> list[Blob]:
        """Takes out the blobs of the next turn: of ticks up to this one, and not more than a turn may have.

        That is half of the records that may be on their way to the worker, so that the rest comes during the turn.
        """
        chosen: list[Blob] = []
        records, most = 0, min(window // 2, _RECORDS)
        while self.has(tick) and records < most:
            chosen.append(self._waiting.popleft())
            records += len(chosen[-1].table)
        return chosen

    def give_back(self, blobs: Sequence[Blob]) -> None:
        """Puts the blobs of a turn that came to nothing in front of the others."""
        self._waiting.extendleft(reversed(blobs))

    def count(self, blobs: Sequence[Blob]) -> None:
        """Takes in that a turn is committed; raises StateError when a blob before one of its blobs is missing."""
        for blob in blobs:
            before = self.applied.get(blob.source, 0)
            if blob.number != before + 1:
                raise StateError(
                    f"Worker {self._worker} got blob {blob.number} of router {blob.source} after {before}."
                )
            self.applied[blob.source] = blob.number
