"""Load-aware: heaviest bins first onto the least loaded worker, moving no more than the balance asks for."""

import heapq

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.placement import Placing

_WHOLE = 1 << 40  # the load of all bins together, in whole numbers so that sums are exact
_ALIKE = 0.01


def place(placing: Placing, *, imbalance: float = 0.05, size_share: float = 0.0) -> NDArray[np.int32]:
    """Returns an assignment whose loads lie within `imbalance` of their mean as far as moving single bins gets there.

    A bin's load is its share of all records, mixed with its share of all bytes of state by `size_share` (0..1); where
    nothing was measured all bins count alike, and a hundredth of the load always does, so that idle bins spread too.
    Bins of workers that are to go are placed first, heaviest first, each onto the least loaded worker (LPT: Graham,
    "Bounds on multiprocessing timing anomalies", 1969). Then the most loaded worker gives one bin to the least loaded
    one until both are within the imbalance, or until no bin would be better off there.

    Guarantees:
        - Either every load is within (1 ± imbalance) times the mean, or the highest load is at most 2 - 2/(W+1) times
          the lowest that any assignment has (Finn and Horowitz, "A linear time approximation algorithm for
          multiprocessor scheduling", BIT 1979).
        - No bin was moved from a worker that stays that could have been left alone without leaving these limits.
          An assignment within the imbalance stays unchanged.
    """
    if not 0 <= imbalance <= 1:
        raise UsageError(f"imbalance must be from 0 to 1, not {imbalance:g}.")
    if not 0 <= size_share <= 1:
        raise UsageError(f"size_share must be from 0 to 1, not {size_share:g}.")
    spread = _Spread(_weights(placing, size_share), placing.current, placing.workers)
    spread.place_homeless()
    spread.level(imbalance)
    spread.take_back(imbalance)
    return spread.goal


def _weights(placing: Placing, size_share: float) -> NDArray[np.int64]:
    alike = np.full(placing.bins, 1 / placing.bins)
    rates, sizes = (alike if v is None or v.sum() <= 0 else v / v.sum() for v in (placing.rates, placing.sizes))
    load: NDArray[np.float64] = (1 - size_share) * rates + size_share * sizes
    return np.rint(((1 - _ALIKE) * load + _ALIKE * alike) * _WHOLE).astype(np.int64)


class _Spread:
    """A goal in the making, with the load of every worker."""

    def __init__(self, weights: NDArray[np.int64], current: NDArray[np.int32], workers: int):
        self.weights, self.current, self.goal = weights, current, current.astype(np.int32)
        stays = current < workers
        self.loads = np.zeros(workers, np.int64)
        np.add.at(self.loads, current[stays], weights[stays])
        self.homeless = np.flatnonzero(~stays)

    def place_homeless(self) -> None:
        """Places the bins of workers that are to go."""
        heap = [(int(load), worker) for worker, load in enumerate(self.loads)]
        heapq.heapify(heap)
        for bin_ in self.homeless[np.lexsort((self.homeless, -self.weights[self.homeless]))].tolist():
            load, worker = heap[0]
            heapq.heapreplace(heap, (load + int(self.weights[bin_]), worker))
            self._give(bin_, worker, -1)

    def level(self, imbalance: float) -> None:
        """Moves bins from the most to the least loaded worker until both are within the imbalance."""
        low, high = self._limits(imbalance)
        while (most := int(self.loads.argmax())) != (least := int(self.loads.argmin())):
            need = max(self.loads[most] - high, low - self.loads[least])
            bin_ = self._to_give(most, int(need), int(self.loads[most] - self.loads[least])) if need > 0 else None
            if bin_ is None:
                return
            self._give(bin_, least, most)

    def take_back(self, imbalance: float) -> None:
        """Lets moved bins stay where they are that need not have moved, those of most load first."""
        low, high = self._limits(imbalance)
        low, high = min(low, int(self.loads.min())), max(high, int(self.loads.max()))
        again = True
        while again:
            again = False
            moved = np.setdiff1d(np.flatnonzero(self.goal != self.current), self.homeless)
            for bin_ in moved[np.lexsort((moved, -self.weights[moved]))].tolist():
                old, new, weight = int(self.current[bin_]), int(self.goal[bin_]), int(self.weights[bin_])
                if self.loads[old] + weight <= high and self.loads[new] - weight >= low:
                    self._give(bin_, old, new)
                    again = True

    def _limits(self, imbalance: float) -> tuple[int, int]:
        mean = int(self.weights.sum()) / len(self.loads)
        return int(np.ceil(mean * (1 - imbalance))), int(np.floor(mean * (1 + imbalance)))

    def _to_give(self, worker: int, need: int, gap: int) -> int | None:
        """Returns the lightest bin of a worker that fills the need, else the heaviest; it must be below the gap."""
        mine = np.flatnonzero(self.goal == worker)
        weights = self.weights[mine]
        fits = (weights > 0) & (weights < gap)
        enough = fits & (weights >= need)
        if enough.any():
            return int(mine[enough][weights[enough].argmin()])
        return int(mine[fits][weights[fits].argmax()]) if fits.any() else None

    def _give(self, bin_: int, worker: int, before: int) -> None:
        self.goal[bin_] = worker
        self.loads[worker] += self.weights[bin_]
        if before >= 0:
            self.loads[before] -= self.weights[bin_]
