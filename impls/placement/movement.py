"""What a change of assignment moves, and the least that any change to the same numbers of bins must move."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Movement:
    """Bins and bytes that have to move, and the least bins and bytes that would have sufficed."""

    bins: int
    size: int
    bins_minimum: int
    size_minimum: int


def moved_against_minimum(
    current: NDArray[np.int32], goal: NDArray[np.int32], sizes: NDArray[np.int64] | None = None
) -> Movement:
    """Returns what a goal moves, against the minimum over all assignments with as many bins per worker as the goal has.

    A worker that owns m bins and is to own n keeps at most min(m, n), at best its largest; everything else must move
    under any policy, and can. Each minimum is computed separately. `sizes` are the bytes per bin, 0 where not given.
    """
    sizes = np.zeros(len(current), np.int64) if sizes is None else sizes
    workers = 1 + int(max(current.max(), goal.max()))
    quota = np.bincount(goal, minlength=workers)
    order = np.lexsort((-sizes, current))
    begins = np.searchsorted(current[order], np.arange(workers))
    rank = np.arange(len(current)) - begins[current[order]]  # of each bin among its worker's, the largest first
    surplus = order[rank >= quota[current[order]]]
    moved = current != goal
    return Movement(int(moved.sum()), int(sizes[moved].sum()), len(surplus), int(sizes[surplus].sum()))
