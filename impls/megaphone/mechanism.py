"""Megaphone (Hoffmann et al., PVLDB 12(9), 2019): planned moves at epoch boundaries, in one of three granularities."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from impls.errors import UsageError
from impls.mechanism import Mechanism
from impls.runtime.plan import EpochPlan, Pull
from impls.runtime.view import View

__all__ = ["MECHANISMS", "AllAtOnce", "Batched", "Fluid"]


def _move(view: View, bins: list[int]) -> EpochPlan:
    routing = view.routing.copy()
    routing[bins] = view.goal[bins]
    return EpochPlan(routing, tuple(Pull(b, int(view.location[b]), int(view.goal[b])) for b in bins))


class AllAtOnce(Mechanism):
    """All misplaced bins move in one epoch ("sudden" in the paper's harness)."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves everything; see `Mechanism.plan`."""
        return _move(view, view.misplaced.tolist())


class Fluid(Mechanism):
    """One bin moves an epoch, in bin order (section 3.3)."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves the first misplaced bin; see `Mechanism.plan`."""
        return _move(view, view.misplaced[:1].tolist())


@dataclass(frozen=True)
class Batched(Mechanism):
    """Each moving epoch is a maximum bipartite matching of old and new owners: no worker sends or receives twice.

    Attributes:
        bins_per_pair: bins that each matched pair moves in an epoch.
        gap_epochs: epochs without moves between two moving epochs, to drain what a move held up (section 4.4).
    """

    bins_per_pair: int = 4
    gap_epochs: int = 0

    def __post_init__(self) -> None:
        if self.bins_per_pair < 1:
            raise UsageError(f"bins_per_pair must be at least 1, not {self.bins_per_pair}.")
        if self.gap_epochs < 0:
            raise UsageError(f"gap_epochs cannot be negative, not {self.gap_epochs}.")

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves `bins_per_pair` bins per matched pair, or waits; see `Mechanism.plan`."""
        if (view.epoch - view.started) % (self.gap_epochs + 1):
            return EpochPlan(view.routing)
        pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        for bin_ in view.misplaced.tolist():
            pairs[int(view.location[bin_]), int(view.goal[bin_])].append(bin_)
        chosen = _matching(list(pairs), view.workers)
        return _move(view, [bin_ for pair in chosen for bin_ in pairs[pair][: self.bins_per_pair]])


def _matching(pairs: list[tuple[int, int]], workers: int) -> list[tuple[int, int]]:
    """Returns a maximum set of pairs in which no worker is source twice or target twice."""
    if not pairs:
        return []
    sources, targets = np.array(pairs).T
    graph = csr_array((np.ones(len(pairs), np.int8), (sources, targets)), shape=(workers, workers))
    matched = maximum_bipartite_matching(graph, perm_type="column")
    return [(source, int(target)) for source, target in enumerate(matched) if target >= 0]


MECHANISMS = {"megaphone-all-at-once": AllAtOnce, "megaphone-fluid": Fluid, "megaphone-batched": Batched}
