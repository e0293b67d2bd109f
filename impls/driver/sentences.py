"""What happened in an epoch, in sentences: for the log, and for whoever asks a running query."""

from collections.abc import Iterator

from impls.driver.record import EpochRecord
from impls.protocol.events import ChangeBegun, ChangeDone, ChangeRefused, Event, MigrationBegun, MigrationDone
from impls.protocol.report import Report

__all__ = ["in_short", "told"]


def told(record: EpochRecord) -> list[str]:
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
