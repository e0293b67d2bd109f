"""The metrics of a running query since its driver began: Prometheus, Spark's progress and `./inv top` show them."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.driver.epochs import EpochRecord, sentences_of
from impls.protocol.events import MigrationBegun, MigrationDone
from impls.protocol.report import PARTS, PHASES, Report
from impls.worker.cells import percentiles_ms

_WINDOW_S = 5.0  # of rates and latencies
_EVENTS = 20
_COUNTED = (
    "records",
    "results",
    "moved_bins",
    "moved_bytes",
    "restored_bins",
    "rebuilt",
    "retries",
    "refused",
    "late",
    "fired",
)


@dataclass(frozen=True, slots=True)
class _Recent:
    """An epoch of the window: its begin and end on the monotonic clock, each worker's records, and latency cells."""

    begin: float
    end: float
    records: dict[int, int]
    commits: int
    cells: list[NDArray[np.void]]


class Metrics:
    """take() every epoch; now() returns the metrics of this moment. Both may be called from any thread.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._lock = clock, threading.Lock()
        self._sums = dict.fromkeys((*_COUNTED, "migrations", "planned_bins", "planned_bytes"), 0)
        self._last: EpochRecord | None = None
        self._recent: deque[_Recent] = deque()
        self._migration: dict[str, Any] | None = None
        self._before = (0, 0, 0.0)  # bins and bytes moved, and the time, when the migration under way began
        self._ended: dict[str, Any] | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)

    def take(self, record: EpochRecord) -> None:
        """Takes in a finished epoch."""
        end = self._clock()
        begin = end - sum(record.ms.values()) / 1e3
        records = {report.worker: report.records for report in record.reports}
        commits = sum(report.commits for report in record.reports)
        with self._lock:
            self._begin_migrations(record, begin)
            for name, value in _counted(record.reports).items():
                self._sums[name] += value
            self._end_migrations(record, end)
            self._last = record
            self._recent.append(_Recent(begin, end, records, commits, list(record.cells.values())))
            while self._recent[0].end < end - _WINDOW_S:
                self._recent.popleft()
            self._events.extend({"at_us": record.end_us, "text": sentence} for sentence in sentences_of(record))

    def plan(self, bins: int, size: int) -> None:
        """Takes in a command that asks for so many bins, with so many bytes of state, to move."""
        with self._lock:
            self._sums["planned_bins"] += bins
            self._sums["planned_bytes"] += size

    def _begin_migrations(self, record: EpochRecord, begin: float) -> None:
        for event in record.events:
            if isinstance(event, MigrationBegun):
                self._migration = {"id": event.id, "label": event.label, "epoch": event.epoch, "bins": event.bins}
                self._before = (self._sums["moved_bins"], self._sums["moved_bytes"], begin)

    def _end_migrations(self, record: EpochRecord, end: float) -> None:
        for event in record.events:
            if isinstance(event, MigrationDone):
                self._sums["migrations"] += not event.superseded
                if self._migration is not None and self._migration["id"] == event.id:
                    self._ended = {**self._migration, **self._moved(end), "superseded": event.superseded}
                    self._migration = None

    def _moved(self, now: float) -> dict[str, Any]:
        bins, size, since = self._before
        sums = self._sums
        return {
            "moved_bins": sums["moved_bins"] - bins,
            "moved_bytes": sums["moved_bytes"] - size,
            "seconds": round(now - since, 3),
        }

    def counts(self) -> dict[str, int]:
        """Returns the counts, the sizes after the last epoch and the number of workers: whole numbers, quickly."""
        with self._lock:
            counts = dict(self._sums)
            if self._last is not None:
                counts |= _sizes(self._last) | {"workers": len(self._last.reports)}
            return counts

    def p99_ms(self) -> float | None:
        """Returns the p99 latency of the last 5 seconds, None where it is not known."""
        with self._lock:
            return percentiles_ms([cells for epoch in self._recent for cells in epoch.cells]).get("p99")

    def now(self) -> dict[str, Any]:
        """Returns the metrics as JSON values; what is not known yet is None or missing.

        Counts since the driver began: records and results (of all workers), moved_bins and moved_bytes (state pulled),
        restored_bins (of them, those that came from the checkpoint), planned_bins and planned_bytes (that commands
        asked to move), migrations (ended), rebuilt (workers), retries (of tasks), refused (records
        set aside), late records and fired timers.
        Of the last epoch: epoch, epoch_ms, phases_ms (inside the job that of the slowest worker), queued (records),
        queue_bytes, misplaced (bins not yet at their goal), migrating, state_bytes, durable_bytes, watermark and
        generation.
        Of the last 5 seconds: rate (records/s), turns_per_s (in real time), latency_ms (p50, p99, max; if a column of
        the scheduled time is known). Also the migration under way and the last one that ended, workers (a row for
        each), and the last 20 events.
        """
        with self._lock:
            now, last = self._clock(), self._last
            metrics: dict[str, Any] = dict(self._sums)
            if last is None:
                return {**metrics, "workers": [], "events": []}
            recent = [epoch for epoch in self._recent if epoch.end >= now - _WINDOW_S]
            span = max(now - recent[0].begin, 1e-3) if recent else _WINDOW_S
            metrics |= _of_epoch(last) | {
                "rate": round(sum(sum(epoch.records.values()) for epoch in recent) / span, 1),
                "turns_per_s": round(sum(epoch.commits for epoch in recent) / span, 1) or None,
                "latency_ms": percentiles_ms([cells for epoch in recent for cells in epoch.cells]),
                "migration": self._migration and {**self._migration, **self._moved(now), "left": last.misplaced},
                "last_migration": self._ended,
                "workers": [_of_worker(report, recent, span) for report in last.reports],
                "events": list(self._events),
            }
            return metrics


def _counted(reports: list[Report]) -> dict[str, int]:
    return {
        "records": sum(r.records for r in reports),
        "results": sum(r.results for r in reports),
        "moved_bins": sum(len(r.moves.bins) for r in reports),
        "moved_bytes": sum(r.moves.bytes for r in reports),
        "restored_bins": sum(r.moves.restored for r in reports),
        "rebuilt": sum(bool(r.recovered) for r in reports),
        "retries": sum(r.attempt > 0 for r in reports),
        "refused": sum(r.refused for r in reports),
        "late": sum(r.event_time.late for r in reports),
        "fired": sum(r.event_time.fired for r in reports),
    }


def _sizes(record: EpochRecord) -> dict[str, int]:
    return {
        "queued": sum(sum(r.queues.lengths[1]) for r in record.reports),
        "queue_bytes": sum(r.queues.bytes for r in record.reports),
        "misplaced": record.misplaced,
        "state_bytes": record.state_bytes,
    }


def _of_epoch(record: EpochRecord) -> dict[str, Any]:
    reports = record.reports
    inside = {name: max((r.ms.get(name, 0.0) for r in reports), default=0.0) for name in (*PHASES, *PARTS)}
    return {
        "epoch": record.written.epoch,
        "generation": record.written.generation,
        "epoch_ms": round(sum(record.ms.values()), 3),
        "phases_ms": {name: round(ms, 3) for name, ms in {**record.ms, **inside}.items()},
        **_sizes(record),
        "migrating": record.written.migrating,
        "durable_bytes": record.durable_bytes,
        "watermark": record.written.watermark,
    }


def _of_worker(report: Report, recent: list[_Recent], span: float) -> dict[str, Any]:
    records = sum(one.records.get(report.worker, 0) for one in recent)
    return {
        "worker": report.worker,
        "host": report.host,
        "rate": round(records / span, 1),
        "queued": sum(report.queues.lengths[1]),
        "busy_ms": round(sum(report.ms.get(name, 0.0) for name in PHASES), 3),
        "lmdb_bytes": report.lmdb_bytes,
    }
