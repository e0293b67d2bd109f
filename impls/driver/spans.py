"""Migrations as spans of OpenTelemetry: a migration has its epochs, and an epoch the bins that were pulled in it.

Spans are made when a migration has ended, in a thread of their own, so that no epoch waits for whoever exports them.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from impls.driver.epochs import EpochRecord
from impls.driver.migrations import MigrationRecord
from impls.errors import UsageError
from impls.protocol.events import MigrationBegun, MigrationDone

_LOG = logging.getLogger(__package__)
_PREFIX = "rescale."


@dataclass(frozen=True)
class _Epoch:
    """An epoch of a migration: its begin and end, and (bin, source, target) of each pull."""

    epoch: int
    begin_us: int
    end_us: int
    pulled: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, record: EpochRecord) -> "_Epoch":
        sources = {pull.bin: pull.source for pull in record.written.plan.pulls}
        pulled = [(bin_, sources.get(bin_, -1), one.worker) for one in record.reports for bin_ in one.moves.bins]
        return cls(record.written.epoch, record.begin_us, record.end_us, tuple(pulled))


def tracer_of(provider: Any) -> Any:
    """Returns a tracer of a provider of OpenTelemetry's, of the global one for None; UsageError if it is missing."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("OpenTelemetry is not installed: install rescale-bench[otel].") from error
    return trace.get_tracer("rescale-bench", tracer_provider=provider)


class MigrationSpans:
    """take() every epoch, behind the log of migrations.

    Args:
        tracer: of OpenTelemetry.
        query: its name, an attribute of each migration.
        records: returns what the log has.
    """

    def __init__(self, tracer: Any, query: str, records: Callable[[], list[MigrationRecord]]):
        self._tracer, self._query, self._records = tracer, query, records
        self._current: str | None = None
        self._epochs: list[_Epoch] = []

    def take(self, record: EpochRecord) -> None:
        """Takes in an epoch."""
        noted = False
        for event in record.events:
            if isinstance(event, MigrationBegun):
                self._current, self._epochs, noted = event.id, [], False
            elif isinstance(event, MigrationDone) and event.id == self._current:
                if not event.superseded:
                    self._epochs.append(_Epoch.of(record))
                self._end(event.id)
                noted = True
        if self._current is not None and not noted:
            self._epochs.append(_Epoch.of(record))

    def _end(self, id_: str) -> None:
        epochs, self._epochs, self._current = self._epochs, [], None
        threading.Thread(target=self._emit, args=(id_, epochs), name="rescale-spans", daemon=True).start()

    def _emit(self, id_: str, epochs: Sequence[_Epoch]) -> None:
        try:
            for migration in (one for one in self._records() if one.id == id_):
                self._spans(migration, epochs)
        except Exception as error:  # whoever exports them is not this project's
            _LOG.warning("The spans of migration %s are lost: %s: %s", id_, type(error).__name__, error)

    def _spans(self, migration: MigrationRecord, epochs: Sequence[_Epoch]) -> None:
        facts = {name: value for name, value in migration.to_json().items() if value is not None}
        begin_us = migration.asked_us or migration.begin_us or epochs[0].begin_us
        whole = self._begin("migration", begin_us, None, {"query": self._query, **facts})
        for epoch in epochs:
            step = self._begin("epoch", epoch.begin_us, whole, {"epoch": epoch.epoch, "bins": len(epoch.pulled)})
            for bin_, source, target in epoch.pulled:
                pull = self._begin("bin", epoch.begin_us, step, {"bin": bin_, "source": source, "target": target})
                pull.end(end_time=epoch.end_us * 1000)
            step.end(end_time=epoch.end_us * 1000)
        whole.end(end_time=(migration.end_us or begin_us) * 1000)

    def _begin(self, name: str, begin_us: int, parent: Any, facts: dict[str, Any]) -> Any:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - an extra

        attributes = {f"{_PREFIX}{key}": value for key, value in facts.items()}
        around = None if parent is None else set_span_in_context(parent)
        return self._tracer.start_span(
            f"{_PREFIX}{name}", context=around, start_time=begin_us * 1000, attributes=attributes
        )
