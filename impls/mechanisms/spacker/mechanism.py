"""Spacker (ICDCS 2025): a plan with three knobs: the order of bins, the size of chunks, which bins have replicas."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.protocol.mechanism import Mechanism, refuse_below_one, refuse_negative, refuse_unless_share
from impls.protocol.moves import after_others, hottest_first, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.replicas import Pairs, due_replicas, pairs_of
from impls.protocol.view import View

_GOLDEN = 2_654_435_761  # its multiples modulo 2^32 are spread evenly (Knuth, volume 3, 6.4)


@dataclass(frozen=True)
class Spacker(Mechanism):
    """Chunks of bins move one after another; bins with replicas at their new owners ship what has changed since.

    Attributes:
        order: which bins move first (prioritisation): `hot`, those with most records; `bin`, ascending; `random`.
        chunk_bins: bins of a chunk (progressiveness), 0 for one chunk of all.
        replicated: share of the bins that have a replica at every other worker (replication), 0 to 1.
        interval_epochs: epochs between two deltas to a replica.
        replicate_bytes: most bytes of first copies that each worker takes in an epoch.
    """

    order: str = "hot"
    chunk_bins: int = 16
    replicated: float = 0.0
    interval_epochs: int = 10
    replicate_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        if self.order not in {"hot", "bin", "random"}:
            raise UsageError(f"order must be hot, bin or random, not {self.order!r}.")
        refuse_unless_share("replicated", self.replicated)
        refuse_below_one("interval_epochs", self.interval_epochs)
        refuse_negative("chunk_bins", self.chunk_bins)
        refuse_negative("replicate_bytes", self.replicate_bytes)

    @property
    def replicates(self) -> bool:
        """Whether any bin has replicas; see `Mechanism`."""
        return self.replicated > 0

    def replicas(self, view: View) -> Pairs:
        """Returns the replicas that are due of the bins that have some; see `Mechanism.replicas`."""
        return due_replicas(view, *self._places(view), self.interval_epochs, self.replicate_bytes)

    def standing(self, view: View) -> Pairs:
        """Returns the replicas of the bins that have some; see `Mechanism.standing`."""
        return pairs_of(*self._places(view))

    def _places(self, view: View) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """Returns the bin and the worker of each replica."""
        every = np.arange(view.bins)
        kept = every[np.floor((every + 1) * self.replicated) > np.floor(every * self.replicated)]  # evenly spread
        bins, workers = (side.ravel() for side in np.meshgrid(kept, np.arange(view.workers, dtype=np.int32)))
        others = workers != view.location[bins]
        return bins[others], workers[others]

    @after_others
    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves the next chunk: as its first bin has a replica or not, all others of it do."""
        bins = self._ordered(view, movable(view).bins)
        there = np.array([(bin_, int(view.goal[bin_])) in view.replicas for bin_ in bins.tolist()], bool)
        chunk = bins[there == there[:1]] if len(bins) else bins
        plan = pull_plan(view, chunk[: self.chunk_bins or None])
        return replace(plan, from_replica=bool(there[:1].any()))

    def _ordered(self, view: View, bins: NDArray[np.intp]) -> NDArray[np.intp]:
        if self.order == "hot":
            return hottest_first(view, bins)
        ordered: NDArray[np.intp] = bins[np.argsort(bins if self.order == "bin" else (bins * _GOLDEN) % (1 << 32))]
        return ordered


MECHANISMS = {"spacker": Spacker}
