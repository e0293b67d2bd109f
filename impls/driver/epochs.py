"""The order of an epoch from its plan and what is known, and the observation from the workers' reports. Pure."""

import numpy as np
from numpy.typing import NDArray

from impls.protocol.controller import Controller
from impls.protocol.eventtime import Partial
from impls.protocol.observation import Observation
from impls.protocol.order import EpochOrder
from impls.protocol.plan import WrittenPlan
from impls.protocol.report import Report
from impls.protocol.versions import Failure

__all__ = ["observation_of", "order_of"]


def observation_of(epoch: int, reports: list[Report], epoch_ms: float, job_ms: float) -> Observation:
    """Merges the workers' reports of an epoch into what the controller needs to know."""

    def merged(pairs: list[tuple[list[int], list[int]]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        ids = np.concatenate([np.asarray(pair[0], np.int32) for pair in pairs]) if pairs else np.empty(0, np.int32)
        values = np.concatenate([np.asarray(pair[1], np.int64) for pair in pairs]) if pairs else np.empty(0, np.int64)
        return ids, values

    return Observation(
        epoch=epoch,
        pulled=tuple(bin_ for report in reports for bin_ in report.moves.bins),
        entries=tuple(n for report in reports for n in report.moves.entries),
        replicas=tuple((bin_, report.worker, at) for report in reports for bin_, at in report.replication.replicas),
        records=merged([report.rates for report in reports]),
        queued=merged([report.queues.lengths for report in reports]),
        sizes=merged([report.sizes for report in reports]),
        epoch_ms=round(epoch_ms, 3),
        job_ms=round(job_ms, 3),
        pull_ms=round(max((report.ms.get("pull", 0.0) for report in reports), default=0.0), 3),
        times=tuple((partition, time) for report in reports for partition, time in report.event_time.times),
        partials=tuple(Partial.from_json(partial) for report in reports for partial in report.event_time.partials),
        waits=tuple(sorted(bin_ for report in reports for bin_ in report.event_time.waits)),
        homes=tuple((report.worker, report.host) for report in reports if report.host),
        turned=tuple((bin_, shape) for report in reports for bin_, shape in report.pipelines.turned),
        tried=sum(report.pipelines.tried for report in reports),
        failed=tuple(Failure(version, text) for report in reports for version, text in report.pipelines.failed),
    )


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
        homes=tuple(sorted(controller.homes.items())),
        hosts=controller.hosts,
    )
