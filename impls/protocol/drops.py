"""Which moved bins their old owners delete in an epoch: at most a budget, and none where bins are pulled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from impls.protocol.plan import Pull

__all__ = ["DROP_ENTRIES", "Drop", "drops_within_budget"]

DROP_ENTRIES = 16_384  # per worker and epoch: the store deletes one by one, 250,000 of hash state in 0.6 s


@dataclass(frozen=True, slots=True)
class Drop:
    """The old copy of a bin at the worker from which it was pulled; `entries` as the store counts them."""

    bin: int
    worker: int
    entries: int

    @property
    def place(self) -> tuple[int, int]:
        """(bin, worker), as a written plan names it."""
        return self.bin, self.worker


def drops_within_budget(pending: Sequence[Drop], pulls: Iterable[Pull], budget: int) -> list[Drop]:
    """Returns the drops of an epoch: for each worker those, in order, that fit `budget` entries, at least one.

    An epoch with pulls drops nothing else: its records would wait for both. But a bin that a worker may pull back in
    this epoch is dropped even beyond the budget, because a later drop would also delete the new state.
    """
    back = {(pull.bin, pull.target) for pull in pulls}
    if back:
        return [drop for drop in pending if drop.place in back]
    left: dict[int, int] = {}
    chosen = []
    for drop in pending:
        room = left.get(drop.worker)
        if room is None or drop.entries <= room:
            chosen.append(drop)
            left[drop.worker] = max(0, (budget if room is None else room) - drop.entries)
    return chosen
