"""Megaphone (Hoffmann et al., PVLDB 12(9), 2019): planned moves at epoch boundaries, in one of three granularities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from impls.protocol.mechanism import Mechanism, refuse_below_one, refuse_negative
from impls.protocol.moves import Moves, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View


class AllAtOnce(Mechanism):
    """All misplaced bins move in one epoch ("sudden" in the paper's harness)."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves everything; see `Mechanism.plan`."""
        return pull_plan(view, movable(view).bins)


class Fluid(Mechanism):
    """One bin moves an epoch, in bin order (section 3.3)."""

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves the first misplaced bin; see `Mechanism.plan`."""
        return pull_plan(view, movable(view).bins[:1])


@dataclass(frozen=True)
class Batched(Mechanism):
    """Each moving epoch is a maximum bipartite matching of old and new owners: no worker sends or receives twice.

    Attributes:
        bins_per_pair: the most bins that each matched pair moves in an epoch.
        gap_epochs: epochs without moves between two moving epochs, to drain what a move held up (section 4.4).
        bytes_per_pair: the most bytes of values that it moves then, but one bin at least; 0 for no bound.
        small_bytes: bins that have fewer bytes of values together move without being counted; 0 counts all.
    """

    bins_per_pair: int = 4
    gap_epochs: int = 0
    bytes_per_pair: int = 1 << 19
    small_bytes: int = 1 << 13

    def __post_init__(self) -> None:
        refuse_below_one("bins_per_pair", self.bins_per_pair)
        refuse_negative("bytes_per_pair", self.bytes_per_pair)
        refuse_negative("gap_epochs", self.gap_epochs)
        refuse_negative("small_bytes", self.small_bytes)

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves some bins per matched pair, or waits; see `Mechanism.plan`."""
        moves = movable(view)
        gap = (view.epoch - view.started) % (self.gap_epochs + 1) != 0
        return pull_plan(view, moves.bins[:0] if gap else self._step(moves, view))

    def _step(self, moves: Moves, view: View) -> NDArray[np.intp]:
        partner = _matching(moves, view.workers)
        matched = np.flatnonzero(partner[moves.sources] == moves.targets)
        by_source = matched[np.argsort(moves.sources[matched], kind="stable")]
        first = np.searchsorted(moves.sources[by_source], moves.sources[by_source])
        place = np.arange(len(by_source)) - first
        size: NDArray[np.int64] = view.size[moves.bins[by_source]]
        total = np.cumsum(size)
        so_far = total - total[first] + size[first]
        fits: NDArray[np.bool_] = (place == 0) | (so_far <= (self.bytes_per_pair or np.inf))
        few: NDArray[np.bool_] = (place < self.bins_per_pair) | (so_far < self.small_bytes)
        chosen: NDArray[np.intp] = moves.bins[np.sort(by_source[few & fits])]
        return chosen


def _matching(moves: Moves, workers: int) -> NDArray[np.int32]:
    """Returns for each old owner the new owner it is matched with, -1 for none; shape (workers,)."""
    sources, targets = np.unique(np.stack([moves.sources, moves.targets]), axis=1)
    graph = csr_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(workers, workers))
    partner: NDArray[np.int32] = maximum_bipartite_matching(graph, perm_type="column")
    return partner


MECHANISMS = {"megaphone-all-at-once": AllAtOnce, "megaphone-fluid": Fluid, "megaphone-batched": Batched}
