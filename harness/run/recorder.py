"""Writes what happens in a run to its folder as it happens, so that a run cut off keeps what was measured."""

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.files import JsonLines, read_lines
from harness.measure.cells import breakdown_of, commits_of, encode_cells, read_epochs
from harness.measure.hosts import hosts_line
from impls.driver.epochs import EpochRecord
from impls.protocol.events import MigrationBegun
from impls.protocol.report import PARTS, PHASES
from impls.worker.cells import percentiles_ms


def _real_time_line(record: EpochRecord) -> dict[str, Any]:
    """Returns what only the line of an epoch in real time has: commits, latency breakdown, median latency."""
    percentiles = percentiles_ms(list(record.cells.values()))
    return {
        "turns": commits_of(record.reports),
        "way_ms": breakdown_of(record.reports),
        "latency_ms": round(percentiles["p50"], 3) if percentiles else None,
    }


def _epoch_line(record: EpochRecord) -> dict[str, Any]:
    """Returns an epoch's line of epochs.jsonl: sums over workers, and for phases inside the job the slowest worker."""
    reports = record.reports
    inside = {name: max((r.ms.get(name, 0.0) for r in reports), default=0.0) for name in (*PHASES, *PARTS)}
    return {
        "epoch": record.written.epoch,
        "begin_us": record.begin_us,
        "end_us": record.end_us,
        "workers": record.written.workers,
        "records": sum(r.records for r in reports),
        "results": sum(r.results for r in reports),
        "queued": sum(sum(r.queues.lengths[1]) for r in reports),
        "waiting": sorted({bin_ for r in reports for bin_ in r.queues.lengths[0]}),
        "queue_bytes": sum(r.queues.bytes for r in reports),
        "outbox_bytes": sum(r.outbox_bytes for r in reports),
        "log_bytes": sum(r.changelog.bytes for r in reports),
        "snapshot_bytes": sum(r.snapshot.bytes for r in reports),
        "durable_bytes": record.durable_bytes,
        "recovered": sum(bool(r.recovered) for r in reports),
        "replicated_bytes": sum(r.replication.bytes for r in reports),
        "standby_records": sum(r.replication.standby_records for r in reports),
        "cache_hits": sum(r.cache.hits for r in reports),
        "cache_misses": sum(r.cache.misses for r in reports),
        "restored_bins": sum(r.moves.restored for r in reports),
        "state_bytes": record.state_bytes,
        "lmdb_bytes": sum(r.lmdb_bytes for r in reports),
        "moved_bins": sum(len(r.moves.bins) for r in reports),
        "moved_bytes": sum(r.moves.bytes for r in reports),
        "longest_pull_ms": round(inside["pull"], 3),
        "migrating": record.written.migrating,
        "misplaced": record.misplaced,
        "negative": sum(r.negative for r in reports),
        "retries": sum(r.attempt > 0 for r in reports),
        "late": sum(r.event_time.late for r in reports),
        "fired": sum(r.event_time.fired for r in reports),
        "watermark": record.written.watermark,
        **hosts_line(reports),
        "ms": {
            "total": round(sum(record.ms.values()), 3),
            **{name: round(value, 3) for name, value in {**record.ms, **inside}.items()},
        },
    }


_TOLD = (
    "epoch", "begin_us", "end_us", "records", "queued", "moved_bins", "moved_bytes", "longest_pull_ms"
)  # fmt: skip
_NO_REPORTS = {"results": 0, "queued": 0, "lmdb_bytes": 0, "longest_pull_ms": 0.0, "negative": 0, "retries": 0}


class Recorder:
    """Takes epochs and events of the running query; every method may be called from any thread.

    With `real_time` the lines say more.
    """

    def __init__(self, folder: Path, *, real_time: bool = False):
        self._real_time = real_time
        self._story_epochs = {line["epoch"]: line for line in read_epochs(folder / "epochs.jsonl")}  # of a resumed run
        self._story_events = read_lines(folder / "events.jsonl")
        self._epochs = JsonLines(folder / "epochs.jsonl")
        self._cells = JsonLines(folder / "cells.jsonl")
        self._events = JsonLines(folder / "events.jsonl")
        self._plans = JsonLines(folder / "plan.jsonl")
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, np.ndarray]] = deque(maxlen=1024)
        self.last: dict[str, Any] = {}
        self.commits = 0  # in real time, since this process began
        self._records: int = sum(line["records"] for line in self._story_epochs.values())
        self.moved_bins = self.moved_bytes = self.epochs = 0
        self.planned_bins = self.planned_bytes = 0  # what the commands of this process asked to move

    def on_epoch(self, record: EpochRecord) -> None:
        """Writes an epoch's line, its latency cells, its plan and the migrations that it began or ended."""
        line = _epoch_line(record) | (_real_time_line(record) if self._real_time else {})
        with self._lock:
            self._epochs.write(line)
            self._plans.write(record.written.to_json())
            for report in record.reports:
                raw = encode_cells(record.cells[report.worker])
                self._cells.write(
                    {"epoch": line["epoch"], "worker": report.worker, "done_us": report.done_us, "cells": raw}
                )
            for event in record.events:
                at_us = record.begin_us if isinstance(event, MigrationBegun) else record.end_us
                self._write_event({"at_us": at_us, **event.to_json()})
            self._remember(line, list(record.cells.values()))

    def on_line(self, line: dict[str, Any], events: list[dict[str, Any]]) -> None:
        """Writes an epoch of a query that makes no reports, and the migrations that it ended."""
        line = {**_NO_REPORTS, **line}
        with self._lock:
            self._epochs.write(line)
            for event in events:
                self._write_event({"at_us": line["end_us"], **event})
            self._remember(line, [])

    def event(self, kind: str, fields: dict[str, Any] | None = None) -> None:
        """Writes an event with the time of now."""
        with self._lock:
            self._write_event({"at_us": now_us(), "kind": kind, **(fields or {})})
            if kind == "command" and (moves := (fields or {}).get("moves")):
                self.planned_bins += moves["bins"]
                self.planned_bytes += moves["size"]

    def _remember(self, line: dict[str, Any], cells: list[np.ndarray]) -> None:
        self.last = line
        self.epochs += 1
        self.moved_bins += line["moved_bins"]
        self.moved_bytes += line["moved_bytes"]
        total = {"total": line["ms"]["total"]}
        self._records += line["records"] - self._story_epochs.get(line["epoch"], {}).get("records", 0)
        self.commits += line.get("turns", 0)
        told = (*_TOLD, "latency_ms") if "latency_ms" in line else _TOLD
        self._story_epochs[line["epoch"]] = {"ms": total, **{name: line[name] for name in told}}
        self._recent.extend((time.monotonic(), part) for part in cells)

    @property
    def records(self) -> int:
        """Records applied so far, by earlier processes of a resumed run too, each epoch counted once."""
        with self._lock:
            return self._records

    def story(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns the events and the epochs of the run so far, each epoch once and with its main numbers only."""
        with self._lock:
            return list(self._story_events), [self._story_epochs[epoch] for epoch in sorted(self._story_epochs)]

    def _write_event(self, event: dict[str, Any]) -> None:
        self._events.write(event)
        self._story_events.append(event)

    def latency_now(self) -> dict[str, float]:
        """Returns p50, p99 and max in milliseconds of the records finished in the last second."""
        since = time.monotonic() - 1.0
        with self._lock:
            parts = [cells for at, cells in self._recent if at >= since]
        return percentiles_ms(parts)

    def close(self) -> None:
        """Closes the files."""
        for file in (self._epochs, self._cells, self._events, self._plans):
            file.close()
