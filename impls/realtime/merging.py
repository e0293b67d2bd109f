"""The report of a tick from the reports of its turns, and the event times that count in it. Pure.

A watermark may rise to the time of a record when every worker has all records before it in its partition. So records
count in the report of the tick behind the one by whose routing they were sent: with event time no worker ends a tick
before it has all that was sent before the tick. Only what one session has brought counts: where a batch comes again
after a failure, what a worker has seen of it says nothing of what others have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from impls.operators.base import Operator
from impls.operators.timed import TimedOperator
from impls.protocol.eventtime import Partial, merge_partials
from impls.protocol.report import EventTimes, Moves, Pipelines, Report, Written
from impls.realtime.blobs import Blob
from impls.worker.turns import highest_times
from impls.worker.turnstate import TurnState

Times = list[list[int]]


def highest(times: Iterable[Sequence[int]]) -> Times:
    """Returns the highest of [partition, event time] pairs in each partition, ascending."""
    found: dict[int, int] = {}
    for partition, time in times:
        found[partition] = max(time, found.get(partition, time))
    return [[partition, time] for partition, time in sorted(found.items())]


def seen(state: TurnState, blobs: Sequence[Blob], operator: Operator) -> TurnState:
    """Takes in what comes in a turn of the state's tick."""
    if operator.event_time is None or not blobs:
        return state
    now, later = (
        [pair for blob in blobs if (blob.tick < state.tick) is early for pair in highest_times(blob.table, operator)]
        for early in (True, False)
    )
    return replace(state, times=highest([*state.times, *now]), ahead=highest([*state.ahead, *later]))


def ended(state: TurnState) -> TurnState:
    """Returns the times behind a tick that ends."""
    return replace(state, said=state.times, times=state.ahead, ahead=[])


def again(state: TurnState) -> TurnState:
    """Forgets what a batch has brought that comes again."""
    return replace(state, said=[], times=[], ahead=[])


def settled(state: TurnState) -> tuple[TurnState, Times]:
    """Returns also what a batch has brought that has ended: all workers have all of it."""
    return replace(state, times=[], ahead=[]), highest([*state.times, *state.ahead])


def counted(report: Report, times: Times) -> Report:
    """Returns a report with further times."""
    event = report.event_time
    return replace(report, event_time=replace(event, times=highest([*event.times, *times]))) if times else report


_SUMS = ("records", "results", "negative", "turns")


def merged_report(first: Report, second: Report) -> Report:
    """Returns what a worker did in two parts of a tick, one after the other.

    Counts and times are sums, sizes and queues those at the end, changed bins those of both.
    """
    first = replace(first, ms=dict(first.ms))
    for name in _SUMS:
        setattr(first, name, getattr(first, name) + getattr(second, name))
    for name, ms in second.ms.items():
        first.ms[name] = first.ms.get(name, 0.0) + ms
    first.rates = _added(first.rates, second.rates)
    sizes = {**dict(zip(*first.sizes, strict=True)), **dict(zip(*second.sizes, strict=True))}
    first.sizes = (list(sizes), list(sizes.values()))
    first.queues, first.done_us = second.queues, max(first.done_us, second.done_us)
    first.outbox_bytes = max(first.outbox_bytes, second.outbox_bytes)
    first.moves = _moves(first.moves, second.moves)
    bins = sorted({*first.changelog.bins, *second.changelog.bins})
    if bins or second.changelog.bytes:
        first.changelog = Written(bins, first.changelog.bytes + second.changelog.bytes)
    first.event_time = _times(first.event_time, second.event_time)
    first.pipelines = _pipelines(first.pipelines, second.pipelines)
    first.recovered = first.recovered or second.recovered
    return first


def _added(first: tuple[list[int], list[int]], second: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    total = dict(zip(*first, strict=True))
    for bin_, number in zip(*second, strict=True):
        total[bin_] = total.get(bin_, 0) + number
    return list(total), list(total.values())


def _moves(first: Moves, second: Moves) -> Moves:
    if not second.bins and not second.lost:
        return first
    return Moves(**{field.name: getattr(first, field.name) + getattr(second, field.name) for field in fields(Moves)})


def _pipelines(first: Pipelines, second: Pipelines) -> Pipelines:
    if not (second.turned or second.tried or second.failed):
        return first
    failed = first.failed or second.failed
    return Pipelines([*first.turned, *second.turned], first.tried + second.tried, failed)


def _times(first: EventTimes, second: EventTimes) -> EventTimes:
    times = highest([*first.times, *second.times])
    late, fired = first.late + second.late, first.fired + second.fired
    return EventTimes(times, [*first.partials, *second.partials], second.waits, late, fired)


def lasting(report: Report) -> dict[str, Any]:
    """Returns of a tick's report what must outlive the task, as fields of `TurnState`.

    These are how many records and results it has had, its pulls, what an event-time operator has told, and what became
    of versions of the pipeline.
    """
    event, moves, pipelines = report.event_time, report.moves, report.pipelines
    told = moves.bins or event.times or event.partials or pipelines.turned or pipelines.tried or pipelines.failed
    parts = Report(report.worker, moves=moves, event_time=event, pipelines=pipelines)
    raw = parts.to_json().decode() if told else ""
    return {"report": raw, "records": report.records, "results": report.results}


def restored(state: TurnState, worker: int) -> Report:
    """Returns the report of the tick under way, as far as `lasting` has kept it."""
    found = Report.from_json(state.report.encode()) if state.report else Report(worker)
    return replace(found, records=state.records, results=state.results)


def merge_told(report: Report, operator: Operator) -> None:
    """Merges the partials that turns have told, those of equal time and key by the operator."""
    assert isinstance(operator, TimedOperator), "an operator with event time is a TimedOperator"
    event, merge = report.event_time, operator.merge
    if len(event.partials) > 1:
        partials: Sequence[Partial] = merge_partials(map(Partial.from_json, event.partials), merge)
        told = [partial.to_json() for partial in partials]
        report.event_time = EventTimes(event.times, told, event.waits, event.late, event.fired)
