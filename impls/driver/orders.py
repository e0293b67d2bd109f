"""What the workers of an epoch are told: derived from the written plan and the controller's knowledge before it."""

from dataclasses import dataclass

import numpy as np

from impls.durability.files import Files
from impls.operators.base import Operator
from impls.protocol.controller import Controller
from impls.protocol.plan import WrittenPlan
from impls.protocol.shared import Shared
from impls.worker.order import StepOrder
from impls.worker.output import Output

__all__ = ["Orders"]


@dataclass(frozen=True)
class Orders:
    """Makes the order of each epoch of one query run; a run of the same epoch again gets an equal order.

    Attributes:
        query: identity of the query; `bins` its number of bins.
        operator, output, state_dir, files, shared: see `StepOrder`.
        generation: that of the driver.
        first_epoch: the first epoch that this driver runs; the one before it may have to be run again.
    """

    query: str
    bins: int
    operator: Operator
    output: Output
    state_dir: str
    files: Files | None
    generation: int
    first_epoch: int
    shared: Shared | None = None

    def order(self, controller: Controller, written: WrittenPlan, snapshot: tuple[int, ...] = ()) -> StepOrder:
        """Returns the order of an epoch whose plan the controller holds."""
        before, plan = controller.before(written.epoch), written.plan
        away = np.flatnonzero(plan.routing != before.location)
        return StepOrder(
            query=self.query,
            written=written,
            bins=self.bins,
            operator=self.operator,
            output=self.output,
            state_dir=self.state_dir,
            first=written.epoch == 0,
            fresh=controller.fresh_workers(written),
            away=tuple((bin_, int(before.location[bin_])) for bin_ in away.tolist()),
            moving=tuple(controller.moving.tolist()),
            replicas=tuple((bin_, worker, at) for (bin_, worker), at in sorted(controller.replicas.items())),
            queued=tuple((bin_, int(before.queued[bin_])) for bin_ in np.flatnonzero(before.queued).tolist()),
            sizes=tuple((pull.bin, int(before.size[pull.bin])) for pull in plan.pulls),
            generation=self.generation,
            files=self.files,
            shared=self.shared,
            snapshot=snapshot,
            heal=written.epoch <= self.first_epoch,
        )
