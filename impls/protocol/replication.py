"""Which replicas are made or refreshed in an epoch: the common part of mechanisms that copy before they move."""

import numpy as np
from numpy.typing import NDArray

from impls.protocol.view import View

__all__ = ["Pairs", "lags", "within_bytes"]

Pairs = tuple[tuple[int, int], ...]
NEVER = 1 << 30


def lags(view: View, bins: NDArray[np.intp], workers: NDArray[np.int32]) -> NDArray[np.int64]:
    """Returns how many epochs the replica of each bin at its worker is behind, a large number for none."""
    shown = [view.replicas.get(pair, -NEVER) for pair in zip(bins.tolist(), workers.tolist(), strict=True)]
    return view.epoch - 1 - np.array(shown, np.int64)


def within_bytes(
    view: View, bins: NDArray[np.intp], workers: NDArray[np.int32], lag: NDArray[np.int64], budget_bytes: int
) -> Pairs:
    """Returns the (bin, worker) pairs to bring up in this epoch, in the order given.

    Refreshing a replica that is there is cheap and always done; making one counts with the bin's size against the
    budget of its worker, of which each gets at least one an epoch.
    """
    spent: dict[int, int] = {}
    chosen = []
    for bin_, worker, behind in zip(bins.tolist(), workers.tolist(), lag.tolist(), strict=True):
        size = int(view.size[bin_])
        if behind < NEVER:
            chosen.append((bin_, worker))
        elif worker not in spent or spent[worker] + size <= budget_bytes:
            spent[worker] = spent.get(worker, 0) + size
            chosen.append((bin_, worker))
    return tuple(chosen)
