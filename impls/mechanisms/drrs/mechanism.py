"""DRRS (ICDE 2025): a rescale is divided into subscales, few at a time, and records that can run overtake others."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impls.protocol.mechanism import Mechanism, refuse_below_one, refuse_negative
from impls.protocol.moves import PULL_BUDGET_BYTES, Moves, hottest_first, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View

Subscale = tuple[int, int, NDArray[np.intp]]  # old owner, new owner, bins


@dataclass(frozen=True)
class Drrs(Mechanism):
    """Bins of one pair of workers move in groups; a worker takes part in few groups at once, whose bins come on demand.

    Attributes:
        subscale_bins: bins of a group at least, where a pair has as many; 0 for one group of all.
        concurrent: groups in which a worker takes part at once.
        pull_budget_bytes: most bytes that each worker pulls in an epoch.
    """

    subscale_bins: int = 7
    concurrent: int = 2
    pull_budget_bytes: int = PULL_BUDGET_BYTES

    def __post_init__(self) -> None:
        refuse_negative("subscale_bins", self.subscale_bins)
        refuse_negative("pull_budget_bytes", self.pull_budget_bytes)
        refuse_below_one("concurrent", self.concurrent)

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that goes on with the subscales under way and begins those for which there is room."""
        moves = movable(view)
        under_way = view.location[moves.bins] != view.routing[moves.bins]
        busy = Counter(worker for *pair, _ in self._subscales(moves, under_way) for worker in pair)
        begun = self._begun(view, self._subscales(moves, ~under_way), busy)
        bins = hottest_first(view, np.concatenate([moves.bins[under_way], *begun]))
        return pull_plan(view, bins, budget_bytes=self.pull_budget_bytes, on_demand=True)

    def _begun(self, view: View, waiting: list[Subscale], busy: Counter[int]) -> Iterator[NDArray[np.intp]]:
        """Yields the bins of subscales to begin, those of workers that own nothing yet first; counts them in `busy`."""
        owners = set(view.location.tolist())
        for source, target, bins in sorted(waiting, key=lambda subscale: subscale[1] in owners):
            if max(busy[source], busy[target]) < self.concurrent:
                busy.update((source, target))
                yield bins

    def _subscales(self, moves: Moves, which: NDArray[np.bool_]) -> list[Subscale]:
        """Divides some of the moves into groups of one pair of workers each, of about equal size."""
        subscales: list[Subscale] = []
        pairs = zip(moves.sources[which].tolist(), moves.targets[which].tolist(), strict=True)
        for source, target in sorted(set(pairs)):
            own = moves.bins[which & (moves.sources == source) & (moves.targets == target)]
            groups = max(1, len(own) // self.subscale_bins) if self.subscale_bins else 1
            subscales += [(source, target, group) for group in np.array_split(own, groups)]
        return subscales


MECHANISMS = {"drrs": Drrs}
