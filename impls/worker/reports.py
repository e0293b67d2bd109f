"""The report of an epoch from those of its commits, and the event times in it. Pure.

A watermark may rise to the time of a record when every worker has all records before it in its partition. In
micro-batches that is so when the record's epoch has ended. In real time records count in the report of the epoch behind
the one by whose routing they were sent: with event time no worker ends an epoch before it has all that was sent before
it. Only what one session has brought counts: where a batch comes again after a failure, what a worker has seen of it
says nothing of what others have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from impls.protocol.report import EventTimes, MovesReport, Pipelines, Report, Written
from impls.worker.state import WorkerState

Times = list[list[int]]


def highest(times: Iterable[Sequence[int]]) -> Times:
    """Returns the highest of [partition, event time] pairs in each partition, ascending."""
    found: dict[int, int] = {}
    for partition, at in times:
        found[partition] = max(at, found.get(partition, at))
    return [[partition, at] for partition, at in sorted(found.items())]


def add_times(state: WorkerState, now: Times, ahead: Times) -> WorkerState:
    """Takes in the times of a commit's records: those that count in its epoch, and in the next one."""
    if not (now or ahead):
        return state
    return replace(state, times=highest([*state.times, *now]), ahead=highest([*state.ahead, *ahead]))


def count_times(state: WorkerState) -> WorkerState:
    """Returns the times behind an epoch that ends: those of its own records count in its report."""
    return replace(state, counted=state.times, times=state.ahead, ahead=[])


def forget_times(state: WorkerState) -> WorkerState:
    """Forgets what a batch has brought that comes again."""
    return replace(state, counted=[], times=[], ahead=[])


def settle_times(state: WorkerState) -> tuple[WorkerState, Times]:
    """Returns also what a batch has brought that has ended: all workers have all of it."""
    return replace(state, times=[], ahead=[]), highest([*state.times, *state.ahead])


def with_times(report: Report, times: Times) -> Report:
    """Returns a report with further times."""
    event = report.event_time
    return replace(report, event_time=replace(event, times=highest([*event.times, *times]))) if times else report


_SUMS = ("records", "results", "refused", "negative", "commits")


def merged_report(first: Report, second: Report) -> Report:
    """Returns what a worker did in two parts of an epoch, one after the other.

    Counts and times are sums, sizes and queues those at the end, changed bins those of both.
    """
    first = replace(first, ms=dict(first.ms))
    for name in _SUMS:
        setattr(first, name, getattr(first, name) + getattr(second, name))
    for name, ms in second.ms.items():
        first.ms[name] = first.ms.get(name, 0.0) + ms
    first.rates = _added(first.rates, second.rates)
    if first.sizes[0]:
        sizes = {**dict(zip(*first.sizes, strict=True)), **dict(zip(*second.sizes, strict=True))}
        first.sizes = (list(sizes), list(sizes.values()))
    else:
        first.sizes = second.sizes
    first.queues, first.done_us = second.queues, max(first.done_us, second.done_us)
    first.outbox_bytes = max(first.outbox_bytes, second.outbox_bytes)
    first.moves = _moves(first.moves, second.moves)
    bins = sorted({*first.changelog.bins, *second.changelog.bins})
    if bins or second.changelog.bytes:
        besides = first.changelog.besides + second.changelog.besides
        first.changelog = Written(bins, first.changelog.bytes + second.changelog.bytes, besides)
    first.event_time = _times(first.event_time, second.event_time)
    first.pipelines = _pipelines(first.pipelines, second.pipelines)
    first.recovered = "; ".join(dict.fromkeys(filter(None, (first.recovered, second.recovered))))
    return first


def _added(first: tuple[list[int], list[int]], second: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    if not first[0]:
        return second
    total = dict(zip(*first, strict=True))
    for bin_, number in zip(*second, strict=True):
        total[bin_] = total.get(bin_, 0) + number
    return list(total), list(total.values())


def _moves(first: MovesReport, second: MovesReport) -> MovesReport:
    if not second.bins and not second.lost:
        return first
    return MovesReport(
        **{field.name: getattr(first, field.name) + getattr(second, field.name) for field in fields(MovesReport)}
    )


def _pipelines(first: Pipelines, second: Pipelines) -> Pipelines:
    if not (second.turned or second.tried or second.failed):
        return first
    failed = first.failed or second.failed
    return Pipelines([*first.turned, *second.turned], first.tried + second.tried, failed)


def _times(first: EventTimes, second: EventTimes) -> EventTimes:
    times = highest([*first.times, *second.times])
    late, fired = first.late + second.late, first.fired + second.fired
    return EventTimes(times, second.waits, late, fired, second.until)


def keep_report(state: WorkerState, first: Report, second: Report) -> WorkerState:
    """Keeps in a state what must outlive the task of an epoch's report: of that so far, which it has, and of a commit.

    These are how many records and results the epoch has had, its pulls, the effects of an event-time operator, and what
    became of versions of the pipeline. Where the commit adds none of it the text stays as it is.
    """
    state = replace(state, records=first.records + second.records, results=state.results + second.results)
    event, moves, pipelines = second.event_time, second.moves, second.pipelines
    if not (moves.bins or event.times or pipelines.turned or pipelines.tried or pipelines.failed):
        return state
    parts = Report(
        first.worker,
        moves=_moves(first.moves, moves),
        event_time=_times(first.event_time, event),
        pipelines=_pipelines(first.pipelines, pipelines),
    )
    return replace(state, report=parts.to_json().decode())


def kept_report(state: WorkerState, worker: int) -> Report:
    """Returns the report of the epoch under way, as far as `keep_report` has kept it."""
    report = Report.from_json(state.report.encode()) if state.report else Report(worker)
    return replace(report, records=state.records, results=state.results)


def resumed_report(state: WorkerState, opened: Report) -> Report:
    """Returns the report of the epoch under way as far as it is kept, with what opening the environment has done."""
    if state.report or state.records or state.results:
        return merged_report(kept_report(state, opened.worker), opened)
    return replace(opened, ms=dict(opened.ms))
