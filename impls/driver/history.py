"""The log of a query's migrations, beside its journals: what operators ask for when a rescale has surprised them.

The query does not need it: where the log is damaged a new one begins, and where it cannot be written the query goes on.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.closing import Closing
from impls.driver.checkpoint import check_single, is_begun
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord
from impls.driver.journal import Journal, read_journal
from impls.driver.migrations import Cause, Line, MigrationRecord, migrations_of, under_way
from impls.driver.spans import MigrationSpans, tracer_of
from impls.errors import StateError, UsageError
from impls.placement.movement import Movement
from impls.protocol.events import Command, MigrationBegun, MigrationDone
from impls.worker.cells import percentiles_ms

_LOG = logging.getLogger(__package__)
_FILE = "history.log"
_LOG_BYTES = 1 << 20
_KEPT = 1000  # migrations, when the log has become longer than that

_CAUSE: ContextVar[tuple[Cause, str]] = ContextVar("cause", default=("command", ""))


@contextmanager
def caused_by(cause: Cause, why: str) -> Iterator[None]:
    """Says why the command is given that this thread gives inside."""
    token = _CAUSE.set((cause, why))
    try:
        yield
    finally:
        _CAUSE.reset(token)


def migrations_in(checkpoint: str | Path) -> list[MigrationRecord]:
    """Returns the migrations of a checkpoint's query, oldest first, also of one that runs; [] where it had none.

    Raises UsageError where there is no checkpoint, or the log is damaged.
    """
    folder = Path(checkpoint)
    check_single(folder)
    if not is_begun(folder):
        raise UsageError(f"There is no checkpoint of a query in {folder}.")
    return migrations_of(read_journal(folder / "rescale" / _FILE))


class MigrationLog(Closing):
    """Keeps a query's migrations: command() from any thread, take() with every epoch that has ended.

    Args:
        own: this project's part of the checkpoint.
    """

    def __init__(self, own: Path):
        self._path, self._lock, self._most = own / _FILE, threading.Lock(), _LOG_BYTES
        self._log = self._opened()
        self._lines: list[Line] = [] if self._log is None else list(read_journal(self._path))
        self._current = under_way(self._lines)

    def _opened(self) -> Journal | None:
        try:
            try:
                return Journal(self._path)
            except UsageError as error:
                _LOG.warning("The log of migrations begins anew, and the one before it is kept: %s", error)
                self._path.replace(self._path.with_suffix(".damaged"))
                return Journal(self._path)
        except (OSError, StateError) as error:
            _LOG.warning("Migrations are not logged: %s", error)
            return None

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            log, self._log = self._log, None
            if log is not None:
                log.close()

    def records(self) -> list[MigrationRecord]:
        """Returns the migrations, oldest first."""
        with self._lock:
            lines = list(self._lines)
        return migrations_of(lines)  # without the lock: the driver may want to add to them

    def command(self, command: Command, before: NDArray[np.int32], moved: Movement, p99_ms: float | None) -> None:
        """Takes in a command: the goal that held before it, what it moves, and the query's p99 latency."""
        (cause, why), workers = _CAUSE.get(), [len(np.unique(goal)) for goal in (before, command.goal)]
        at_us, label = time.time_ns() // 1000, command.label
        _LOG.info("Command %s: %s; %s bins, %s bytes of state are to move.", command.id, label, moved.bins, moved.size)
        self._add(
            kind="command", id=command.id, cause=cause, why=why, label=label, at_us=at_us, workers=workers,
            bins=int(moved.bins), bytes=int(moved.size), p99_ms=p99_ms,
        )  # fmt: skip

    def take(self, record: EpochRecord) -> None:
        """Takes in an epoch."""
        noted = False
        for event in record.events:
            if isinstance(event, MigrationBegun):
                self._current, noted = event.id, False
                at = {"epoch": event.epoch, "at_us": record.begin_us}
                self._add(kind="begin", id=event.id, label=event.label, bins=event.bins, **at)
            elif isinstance(event, MigrationDone):
                if not event.superseded:
                    noted = self._epoch(event.id, record)
                how, at_us = ("replaced", record.begin_us) if event.superseded else ("done", record.end_us)
                self._add(kind="end", id=event.id, how=how, at_us=at_us)
                self._current = None if event.id == self._current else self._current
        if self._current is not None and not noted:
            self._epoch(self._current, record)
        for loss in _losses(record):
            self._add(**loss)

    def _epoch(self, id_: str, record: EpochRecord) -> bool:
        moves = [report.moves for report in record.reports]
        self._add(
            kind="epoch", id=id_, epoch=record.written.epoch, begin_us=record.begin_us, end_us=record.end_us,
            bins=sum(len(one.bins) for one in moves), bytes=sum(one.bytes for one in moves),
            restored=sum(one.restored for one in moves), max_ms=_highest_ms(record),
        )  # fmt: skip
        return True

    def _add(self, **line: Any) -> None:
        with self._lock:
            if self._log is None:
                return
            self._lines.append(line)
            try:
                self._log.append(line)
                if self._log.size > self._most:
                    self._shorten(self._log)
            except StateError as error:  # a full disk, of which the journals will tell
                _LOG.warning("A line of the log of migrations is lost: %s", error)
            except OSError as error:  # it was written anew, and cannot be opened again
                self._log.close()
                self._log = None
                _LOG.warning("Migrations are no longer logged: %s", error)

    def _shorten(self, log: Journal) -> None:
        """Keeps one line of each of the last migrations, and all of those that have not ended."""
        kept = migrations_of(self._lines)[-_KEPT:]
        whole = {one.id for one in kept if one.outcome in {"done", "replaced"}}
        open_ = {one.id for one in kept} - whole
        lines: list[Line] = [{"kind": "record", **one.to_json()} for one in kept if one.id in whole]
        self._lines = [*lines, *(line for line in self._lines if line["id"] in open_)]
        log.rewrite(map(dict, self._lines), base=-1)
        self._most = max(_LOG_BYTES, 2 * log.size)  # else a migration of very many epochs would be copied with each


def _highest_ms(record: EpochRecord) -> float | None:
    return percentiles_ms(list(record.cells.values())).get("max")


def _losses(record: EpochRecord) -> Iterator[dict[str, Any]]:
    """Yields a line for each worker that was rebuilt, or whose bins came from the checkpoint."""
    epoch, at = record.written.epoch, {"begin_us": record.begin_us, "end_us": record.end_us}
    for report in record.reports:
        own = report.worker
        found = [(f"{own}", f"worker {own} was rebuilt", report.recovered)] if report.recovered else []
        found += [(f"{one}>{own}", f"worker {one} gave no bins to worker {own}", why) for one, why in report.moves.lost]
        for place, what, why in found:
            whole = MigrationRecord(
                f"{place}@{epoch}", "loss", what, "done", why, epochs=1,
                restored_bins=report.moves.restored, highest_ms=_highest_ms(record), **at,
            )  # fmt: skip
            yield {"kind": "loss", **whole.to_json()}


class Recorded:
    """A query whose migrations are kept.

    Args:
        driver: of the query.
        own: this project's part of the checkpoint.
    """

    def __init__(self, driver: Driver, own: Path):
        self._history, self._listeners = MigrationLog(own), driver.listeners
        self._listeners.append(self._history.take)

    def migrations(self) -> list[MigrationRecord]:
        """Returns the migrations of the query, oldest first, of its earlier starts too.

        Rescales, rebalances and the loss of workers, each with cause, phases, bytes, latency and outcome. The last
        1000 are kept; `./inv history CHECKPOINT` shows them, also when the query has ended.
        """
        return self._history.records()

    def trace_migrations(self, provider: Any = None, *, name: str = "") -> None:
        """Gives each migration that begins from now on to OpenTelemetry when it has ended, as spans.

        A span `rescale.migration` has those of its epochs, and each of these one for each bin that was pulled in it.
        Their attributes are the fields of `MigrationRecord`.

        Args:
            provider: a TracerProvider; None for the global one.
            name: of the query, in the attribute `rescale.query`.

        Raises:
            UsageError: OpenTelemetry is not installed.
        """
        self._listeners.append(MigrationSpans(tracer_of(provider), name, self._history.records).take)
