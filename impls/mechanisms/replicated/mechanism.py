"""Replicated dataflow (ChronoStream, Gloss): the new owner catches up, runs beside the old one, then takes over."""

from dataclasses import dataclass, replace

import numpy as np

from impls.protocol.mechanism import Mechanism, refuse_below_one, refuse_negative
from impls.protocol.moves import after_others, movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.replicas import Copies, lags, pairs_of, within_bytes
from impls.protocol.view import View


@dataclass(frozen=True)
class ReplicatedDataflow(Mechanism):
    """State is copied in the background; then both owners process the same records, and the new one takes over.

    Attributes:
        replicate_bytes: most bytes of copies that each worker takes in an epoch.
        catch_up_epochs: epochs that a copy may be behind when its worker begins to process records too.
    """

    replicate_bytes: int = 4 << 20
    catch_up_epochs: int = 5

    def __post_init__(self) -> None:
        refuse_negative("replicate_bytes", self.replicate_bytes)
        refuse_below_one("catch_up_epochs", self.catch_up_epochs)

    @property
    def replicates(self) -> bool:
        """Always: the copies are replicas; see `Mechanism`."""
        return True

    @after_others
    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that copies bins, processes them twice, or hands over those that were processed twice."""
        bins = movable(view).bins
        targets = view.goal[bins]
        lag = lags(view, bins, targets)
        plan = pull_plan(view, bins[:0])
        if not len(bins):
            return plan
        if (lag == 0).all():  # a replica that only follows the changelog is always one epoch behind
            return replace(pull_plan(view, bins), from_replica=True)
        if (lag <= self.catch_up_epochs).all():
            return replace(plan, copies=Copies(standbys=pairs_of(bins, targets)))
        due = np.flatnonzero(lag > self.catch_up_epochs // 2)
        made = within_bytes(view, bins[due], targets[due], lag[due], self.replicate_bytes)
        return replace(plan, copies=Copies(made))


MECHANISMS = {"replicated-dataflow": ReplicatedDataflow}
