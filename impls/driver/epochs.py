"""An epoch as the driver sees it: its order, its observation, its record for listeners, what ends it early. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impls.protocol.controller import Controller
from impls.protocol.events import ChangeBegun, ChangeDone, ChangeRefused, Event, MigrationBegun, MigrationDone
from impls.protocol.order import EpochOrder
from impls.protocol.plan import Stop, WrittenPlan
from impls.protocol.report import Report
from impls.protocol.seats import Seating
from impls.protocol.versions import Failure
from impls.protocol.view import Observation


class QueryEnded(Exception):  # noqa: N818 - a signal to the supervisor, not a failure
    """The query was asked to end and is between two epochs."""


class StopNeeded(Exception):  # noqa: N818
    """The plan asks for a stop before `epoch`: the query ends, that becomes durable, and it is started again.

    With `what` "application" the Spark session is to be stopped and started as well.
    """

    def __init__(self, epoch: int, what: Stop):
        super().__init__(f"stop before epoch {epoch}")
        self.epoch, self.what = epoch, what


def observation_of(written: WrittenPlan, reports: list[Report], epoch_ms: float, job_ms: float) -> Observation:
    """Merges the workers' reports of an epoch into what the controller needs to know."""
    until = max((report.event_time.until for report in reports if report.event_time.until is not None), default=None)
    waits = {bin_ for report in reports for bin_ in report.event_time.waits}

    def merged(pairs: list[tuple[list[int], list[int]]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        ids = np.concatenate([np.asarray(pair[0], np.int32) for pair in pairs]) if pairs else np.empty(0, np.int32)
        values = np.concatenate([np.asarray(pair[1], np.int64) for pair in pairs]) if pairs else np.empty(0, np.int64)
        return ids, values

    return Observation(
        epoch=written.epoch,
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
        until=until,
        waits=tuple(sorted(waits | _behind(until, written, reports))),
        homes=tuple((report.worker, report.host) for report in reports if report.host),
        turned=tuple((bin_, shape) for report in reports for bin_, shape in report.pipelines.turned),
        tried=sum(report.pipelines.tried for report in reports),
        failed=tuple(Failure(*failure) for report in reports for failure in report.pipelines.failed),
    )


def _behind(until: int | None, written: WrittenPlan, reports: list[Report]) -> set[int]:
    """Returns the bins of workers that have run timers less far than others, as their session was told less."""
    behind = [report.worker for report in reports if report.event_time.until != until]
    return set(np.flatnonzero(np.isin(written.plan.routing, behind)).tolist())


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
        seating=Seating(homes=tuple(sorted(controller.homes.items())), hosts=controller.hosts),
    )


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The record of a finished epoch.

    Attributes:
        written: the plan it obeyed.
        begin_us, end_us: wall clock of foreachBatch's begin and end, µs.
        reports: one per worker, ascending.
        cells: latency cells by worker, dtype CELL.
        ms: between (end of the last epoch to begin of this one), plan, build, job,
            sink (a function of the user's, where results go to one), observe; milliseconds.
        misplaced: bins not at their goal after the epoch.
        durable_bytes: size of changelog and snapshots after the epoch.
        events: migrations that began or ended with it.
        state_bytes: size of the state of all bins.
    """

    written: WrittenPlan
    begin_us: int
    end_us: int
    reports: list[Report]
    cells: dict[int, NDArray[np.void]]
    ms: dict[str, float]
    misplaced: int
    durable_bytes: int
    events: tuple[Event, ...] = ()
    state_bytes: int = 0


def sentences_of(record: EpochRecord) -> list[str]:
    """Returns a sentence for each migration or change that began or ended with an epoch, and each worker rebuilt."""
    return [*(sentence for report in record.reports for sentence in _of_report(report, record.written.epoch)),
            *map(_of_event, record.events)]  # fmt: skip


def in_short(record: EpochRecord) -> str:
    """Returns a line with an epoch's main numbers."""
    reports = record.reports
    records, queued = (sum(r.records for r in reports), sum(sum(r.queues.lengths[1]) for r in reports))
    moved, size = (sum(len(r.moves.bins) for r in reports), sum(r.moves.bytes for r in reports))
    return (
        f"Epoch {record.written.epoch}: {records} records by {len(reports)} workers in "
        f"{sum(record.ms.values()):.0f} ms, {queued} queued, {moved} bins moved ({size} bytes)."
    )


def _of_report(report: Report, epoch: int) -> Iterator[str]:
    if report.recovered:
        yield f"Worker {report.worker} was rebuilt from the checkpoint in epoch {epoch}: {report.recovered}."
    for source, why in report.moves.lost:
        yield f"Bins of worker {source} came to worker {report.worker} from the checkpoint in epoch {epoch}: {why}."


def _of_event(event: Event) -> str:
    match event:
        case MigrationBegun():
            return f"Migration {event.id} ({event.label}) begins with epoch {event.epoch}: {event.bins} bins to move."
        case MigrationDone():
            how = "gives way to a newer command" if event.superseded else "is done"
            return f"Migration {event.id} {how} with epoch {event.epoch}."
        case ChangeBegun():
            return f"Change {event.id} ({event.label}) is tried from epoch {event.epoch} as version {event.version}."
        case ChangeDone():
            return f"Change {event.id} is done with epoch {event.epoch}: version {event.version} runs."
        case ChangeRefused():
            how = "is taken back" if event.rolled_back else "is refused"
            return f"Change {event.id} {how} with epoch {event.epoch}: {event.why}"
