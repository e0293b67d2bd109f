"""Rhino (Del Monte et al., SIGMOD 2020): replicas are kept beside the stream, a move ships the last delta."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.protocol.mechanism import Mechanism, refuse_below_one
from impls.protocol.moves import after_others, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.replicas import Copies, Pairs, due_replicas, lags, pairs_of, within_bytes
from impls.protocol.view import View


@dataclass(frozen=True)
class Rhino(Mechanism):
    """Each bin has replicas on other workers; a handover takes the new owner's replica and what has changed since.

    Attributes:
        interval_epochs: epochs between two deltas to a replica.
        factor: replicas of each bin, on as many other workers.
        replicate_bytes: most bytes of first copies that each worker takes in an epoch.
    """

    interval_epochs: int = 10
    factor: int = 1
    replicate_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        refuse_below_one("interval_epochs", self.interval_epochs)
        if self.factor < 0 or self.replicate_bytes < 0:
            raise UsageError("factor and replicate_bytes cannot be negative.")

    @property
    def replicates(self) -> bool:
        """Always: a migration makes the replicas that there are not; see `Mechanism`."""
        return True

    def replicas(self, view: View) -> Pairs:
        """Returns the replicas of the groups that are due; see `Mechanism.replicas`."""
        return due_replicas(view, *self._places(view), self.interval_epochs, self.replicate_bytes)

    def standing(self, view: View) -> Pairs:
        """Returns each bin's replicas; see `Mechanism.standing`."""
        return pairs_of(*self._places(view))

    def _places(self, view: View) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """Returns the bin and the worker of each replica."""
        others = view.workers - 1
        bins = np.tile(np.arange(view.bins), min(self.factor, others))
        step = (bins + np.arange(len(bins)) // view.bins) % max(others, 1)
        workers = ((view.location[bins] + 1 + step) % view.workers).astype(np.int32)
        return bins, workers

    @after_others
    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that makes the new owners' replicas, or hands over once all of them are fresh."""
        bins = movable(view).bins
        targets = view.goal[bins]
        lag = lags(view, bins, targets)
        if len(bins) and (lag <= self.interval_epochs).all():
            return replace(pull_plan(view, bins), from_replica=True)
        due = lag > self.interval_epochs // 2
        copies = within_bytes(view, bins[due], targets[due], lag[due], self.replicate_bytes)
        return replace(pull_plan(view, bins[:0]), copies=Copies(copies))


MECHANISMS = {"rhino": Rhino}
