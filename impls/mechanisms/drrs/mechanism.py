"""DRRS (ICDE 2025): a rescale is divided into subscales, few at a time, and records that can run overtake others."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.protocol.mechanism import Mechanism, refuse_negative
from impls.protocol.moves import PULL_BUDGET_BYTES, continued, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View

__all__ = ["MECHANISMS", "Drrs"]

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
        if self.concurrent < 1:
            raise UsageError(f"concurrent must be at least 1, not {self.concurrent}.")

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that goes on with the subscales under way and begins those for which there is room."""
        left = continued(view)
        under_way = self._subscales(left, view.location[left], view.routing[left])
        busy = Counter(worker for *pair, _ in under_way for worker in pair)
        begun = [bins for _, _, bins in self._begun(view, len(left), busy)]
        bins = np.concatenate([left, *begun])
        plan = pull_plan(view, bins[np.lexsort((bins, -view.rate[bins]))], on_demand=True)
        return replace(plan, budget_bytes=self.pull_budget_bytes)

    def _begun(self, view: View, under_way: int, busy: Counter[int]) -> Iterator[Subscale]:
        """Yields the subscales to begin, those of workers that own nothing yet first, and counts them in `busy`."""
        moves = movable(view)
        sources, targets = moves.sources[under_way:], moves.targets[under_way:]
        waiting = self._subscales(moves.bins[under_way:], sources, targets)
        owners = set(view.location.tolist())
        for source, target, bins in sorted(waiting, key=lambda subscale: subscale[1] in owners):
            if max(busy[source], busy[target]) < self.concurrent:
                busy.update((source, target))
                yield source, target, bins

    def _subscales(
        self, bins: NDArray[np.intp], sources: NDArray[np.int32], targets: NDArray[np.int32]
    ) -> list[Subscale]:
        """Divides bins into groups of one pair of workers each, of about equal size."""
        found: list[Subscale] = []
        for source, target in sorted(set(zip(sources.tolist(), targets.tolist(), strict=True))):
            own = bins[(sources == source) & (targets == target)]
            groups = max(1, len(own) // self.subscale_bins) if self.subscale_bins else 1
            found += [(source, target, group) for group in np.array_split(own, groups)]
        return found


MECHANISMS = {"drrs": Drrs}
