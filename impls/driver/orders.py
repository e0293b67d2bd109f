"""The order of an epoch, derived from the written plan and the controller's knowledge before it."""

import numpy as np

from impls.protocol.controller import Controller
from impls.protocol.order import EpochOrder
from impls.protocol.plan import WrittenPlan

__all__ = ["order_of"]


def order_of(
    controller: Controller, written: WrittenPlan, *, generation: int, first_epoch: int, snapshot: tuple[int, ...] = ()
) -> EpochOrder:
    """Returns the order of an epoch whose plan the controller holds; equal for an epoch that is run again.

    Args:
        controller: what was known before the epoch.
        written: its plan.
        generation: that of the driver.
        first_epoch: the first epoch that this driver runs; the one before it may have to be run again.
        snapshot: bins to snapshot.
    """
    before, plan = controller.before(written.epoch), written.plan
    elsewhere = np.flatnonzero(plan.routing != before.location)
    return EpochOrder(
        written,
        generation,
        first=written.epoch == 0,
        fresh=controller.fresh_workers(written),
        elsewhere=tuple((bin_, int(before.location[bin_])) for bin_ in elsewhere.tolist()),
        replicas=tuple((bin_, worker, at) for (bin_, worker), at in sorted(controller.replicas.items())),
        queued=tuple((bin_, int(before.queued[bin_])) for bin_ in np.flatnonzero(before.queued).tolist()),
        sizes=tuple((pull.bin, int(before.size[pull.bin])) for pull in plan.pulls),
        snapshot=snapshot,
        moving=tuple(controller.moving.tolist()),
        check_frame=written.epoch <= first_epoch,
    )
