"""Event times that count in the report of a tick, so that the watermark passes no record that is still on its way.

A watermark may rise to the time of a record when every worker has all records before it in its partition. So records
count in the report of the tick behind the one by whose routing they were sent: with event time no worker ends a tick
before it has all that was sent before the tick. Only what one session has brought counts: where a batch comes again
after a failure, what a worker has seen of it says nothing of what others have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from impls.operators.base import Operator
from impls.protocol.report import Report
from impls.realtime.blobs import Blob
from impls.worker.turns import highest_times
from impls.worker.turnstate import TurnState

__all__ = ["again", "counted", "ended", "highest", "seen", "settled"]

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
