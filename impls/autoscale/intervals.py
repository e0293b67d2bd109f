"""Intervals from what epochs report and what the source has: a pure aggregation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from impls.autoscale import Interval
from impls.protocol.plan import WrittenPlan
from impls.protocol.report import Report

_USEFUL = ("apply", "commit", "log")
"""A worker's phases that are useful time: what its records cost it. Opening the environment and moving bins are not for
records; sending results is to wait for the broker."""


PartitionOffsets = Mapping[tuple[str, int], int]
"""By topic and partition, the offset behind the last record."""


class Look(NamedTuple):
    """One look at the source: seconds by a clock that never goes back, and the offsets behind its last records."""

    at_s: float
    ends: PartitionOffsets


@dataclass(frozen=True)
class Sample:
    """What an epoch adds to an interval.

    Attributes:
        epoch: its number.
        end_s: its end, in seconds by a clock that never goes back.
        consumed: offsets behind what it and all epochs before it have read.
        workers: those that bins are routed to.
        migrating: whether a migration was under way.
        applied, useful_s: records and seconds of useful time by worker.
        queued: records in the queues of bins whose state is on its way.
        hosts: on which its workers were.
        cells: latency cells, dtype `impls.worker.cells.CELL`.
    """

    epoch: int
    end_s: float
    consumed: PartitionOffsets
    workers: int
    migrating: bool
    applied: tuple[int, ...]
    useful_s: tuple[float, ...]
    queued: int
    hosts: int
    cells: tuple[NDArray[np.void], ...] = ()

    @classmethod
    def of(
        cls, written: WrittenPlan, reports: Sequence[Report], cells: Iterable[NDArray[np.void]],
        consumed: PartitionOffsets, *, end_s: float,
    ) -> "Sample":  # fmt: skip
        """Returns the sample of an epoch from its plan, its workers' reports and latency cells."""
        return cls(
            epoch=written.epoch,
            end_s=end_s,
            consumed=consumed,
            workers=len(np.unique(written.plan.routing)),
            migrating=written.migrating,
            applied=tuple(report.records for report in reports),
            useful_s=tuple(sum(report.ms.get(phase, 0.0) for phase in _USEFUL) / 1e3 for report in reports),
            queued=sum(sum(report.queues.lengths[1]) for report in reports),
            hosts=max(1, len({report.host for report in reports})),
            cells=tuple(found for found in cells if len(found)),
        )


class Gathering:
    """add() every epoch; begin() and close() an interval with a look each.

    An interval begins and ends with an epoch. One in which a migration runs, or the number of workers changes, is given
    up; the next one begins with the first epoch behind it.

    Attributes:
        disturbed: an interval was given up since this was last set to False.
    """

    def __init__(self, percentile: float):
        self._percentile = percentile
        self.disturbed = False
        self._look: Look | None = None
        self._first: Sample | None = None  # the epoch with whose end the interval begins
        self._samples: list[Sample] = []
        self._begun: Sample | None = None
        self._applied = 0  # records behind the end of that epoch
        self._consumed: PartitionOffsets = {}

    @property
    def last(self) -> Sample | None:
        """The epoch with which the interval could end now; None where there is none, or no interval."""
        return self._samples[-1] if self._samples and self._look is not None else None

    @property
    def first(self) -> Sample | None:
        """The epoch with which an interval can begin; None where there is none, or one has begun."""
        return self._first if self._look is None else None

    def add(self, sample: Sample) -> None:
        """Takes in a finished epoch."""
        if self._begun is None:
            self._begun = sample
        else:
            self._applied += sum(sample.applied)
        self._consumed = sample.consumed
        if sample.migrating or (self._first is not None and sample.workers != self._first.workers):
            self.give_up()
        if self._look is None:  # what a migration ends with is where an interval may begin
            self._first = sample
        else:
            self._samples.append(sample)

    def give_up(self) -> None:
        """Ends the interval unfinished."""
        self.disturbed, self._look, self._first, self._samples = True, None, None, []

    def begin(self, sample: Sample, look: Look) -> None:
        """Begins an interval with the end of an epoch; epochs that have ended since are not measured."""
        self._first, self._look, self._samples = sample, look, []

    def close(self, last: Sample, look: Look) -> Interval:
        """Returns the interval that ends with an epoch, and begins the next one there.

        Args:
            last: one of its epochs.
            look: at the source, after that.
        """
        begun, first = self._look, self._first
        assert begun is not None, "an interval has begun"
        assert first is not None, "with an epoch"
        samples = [one for one in self._samples if one.epoch <= last.epoch]
        interval = _interval(first, samples, (begun, look), self._selected(), self._percentile)
        self._first, self._look = last, look
        self._samples = [one for one in self._samples if one.epoch > last.epoch]
        return interval

    def _selected(self) -> float:
        """Returns the share of the source's records that reaches the workers, of all epochs so far; 1 if unknown.

        Of one interval it would depend on what waits in queues at its ends.
        """
        assert self._begun is not None, "an interval has begun"
        consumed = _between(self._begun.consumed, self._consumed)
        return min(self._applied / consumed, 1.0) if consumed and self._applied else 1.0


def _interval(
    first: Sample, samples: Sequence[Sample], looks: tuple[Look, Look], selected: float, percentile: float
) -> Interval:
    last, (begun, look) = samples[-1], looks
    return Interval(
        begin_s=first.end_s,
        end_s=last.end_s,
        workers=last.workers,
        offered_rate=_between(begun.ends, look.ends) * selected / max(look.at_s - begun.at_s, 1e-9),
        applied=_summed([one.applied for one in samples]),
        useful_s=_summed([one.useful_s for one in samples]),
        backlog=_between(last.consumed, look.ends) * selected + last.queued,
        backlog_before=_between(first.consumed, begun.ends) * selected + first.queued,
        latency_ms=percentile_ms([cells for one in samples for cells in one.cells], percentile),
        epochs=len(samples),
        hosts=last.hosts,
    )


def _between(before: PartitionOffsets, after: PartitionOffsets) -> int:
    """Returns the records from one set of offsets to another; partitions that one of them lacks have none."""
    return sum(max(after[place] - at, 0) for place, at in before.items() if place in after)


def _summed(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Returns the sums by worker; epochs may differ in workers without bins, whose numbers are the highest."""
    longest = max(map(len, rows))
    return tuple(float(sum(row[place] for row in rows if place < len(row))) for place in range(longest))


def percentile_ms(cells: Sequence[NDArray[np.void]], share: float) -> float | None:
    """Returns the latency in ms that a share (0..1) of the records in cells does not exceed, None without records."""
    cells = [part for part in cells if len(part)]
    if not cells:
        return None
    merged = np.concatenate(cells)
    order = np.argsort(merged["latency_us"])
    counts = np.cumsum(merged["count"][order])
    place = min(int(np.searchsorted(counts, share * counts[-1])), len(order) - 1)
    return round(float(merged["latency_us"][order][place]) / 1e3, 3)
