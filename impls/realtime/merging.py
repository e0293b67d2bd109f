"""The report of a tick from those of its turns: event times, latencies and their breakdown. Pure.

A watermark may rise to the time of a record when every worker has all records before it in its partition. So records
count in the report of the tick behind the one by whose routing they were sent: with event time no worker ends a tick
before it has all that was sent before the tick. Only what one session has brought counts: where a batch comes again
after a failure, what a worker has seen of it says nothing of what others have.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.operators.base import Operator
from impls.operators.timed import TimedOperator
from impls.protocol.eventtime import Partial, merge_partials
from impls.protocol.report import EventTimes, Moves, Pipelines, Report, Written
from impls.realtime.blobs import Blob
from impls.store.checked import checked, get_of_epoch, open_record, put_of_epoch
from impls.store.tables import OUTBOX, drop_range, iter_range
from impls.worker.cells import are_moved, make_cells
from impls.worker.turns import highest_times
from impls.worker.turnstate import TurnState

Times = list[list[int]]


def highest(times: Iterable[Sequence[int]]) -> Times:
    """Returns the highest of [partition, event time] pairs in each partition, ascending."""
    found: dict[int, int] = {}
    for partition, at in times:
        found[partition] = max(at, found.get(partition, at))
    return [[partition, at] for partition, at in sorted(found.items())]


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


_SUMS = ("records", "results", "refused", "negative", "turns")


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
    first.recovered = "; ".join(dict.fromkeys(filter(None, (first.recovered, second.recovered))))
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


def lasting(state: TurnState, first: Report, second: Report) -> TurnState:
    """Keeps in a state what must outlive the task of a tick's report: of that so far, which it has, and of a turn.

    These are how many records and results the tick has had, its pulls, what an event-time operator has told, and what
    became of versions of the pipeline. Where the turn tells none of it the text stays as it is: of 12,000 partials it
    has 2 MB, and to write it again cost each further turn of the tick 10 ms.
    """
    state = replace(state, records=first.records + second.records, results=state.results + second.results)
    event, moves, pipelines = second.event_time, second.moves, second.pipelines
    if not (moves.bins or event.times or event.partials or pipelines.turned or pipelines.tried or pipelines.failed):
        return state
    parts = Report(
        first.worker,
        moves=_moves(first.moves, moves),
        event_time=_times(first.event_time, event),
        pipelines=_pipelines(first.pipelines, pipelines),
    )
    return replace(state, report=parts.to_json().decode())


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


_NOW, _ENDED = OUTBOX + b"latencies", OUTBOX + b"ended-cells"  # "cells", of former versions, has another form
_LATENCIES_END = _NOW + b"\xff"
_WHEN = np.dtype([("time", "<i8"), ("done", "<i8"), ("moved", "u1")])


def _item(turn: int) -> bytes:
    """Returns the name of the item with the latencies of a turn of the tick."""
    return _NOW + turn.to_bytes(4, "big")


@dataclass
class Latencies:
    """When the records of a tick were due and their results arrived, from which cells are made when the tick ends.

    Attributes:
        turns: of each turn whose results have arrived, dtype _WHEN: scheduled time, arrival, `moved`.
        sent: the same of the last turn, whose results are not known to have arrived.
        stored: the first turns that are stored as they are here, each as an item.
    """

    turns: list[NDArray[np.void]]
    sent: NDArray[np.void]
    stored: int = 0

    @classmethod
    def none(cls) -> "Latencies":
        """Returns those of a tick that begins."""
        return cls([], np.empty(0, _WHEN))

    @classmethod
    def read(cls, txn: lmdb.Transaction) -> "Latencies":
        """Returns what `write` stored with the last turn, its records counted as of now: their results have come."""
        items = [(bytes(name), bytes(value)) for name, value in iter_range(txn, _item(0), _LATENCIES_END)]
        turns = [np.frombuffer(open_record(*item), _WHEN).copy() for item in items]
        if turns:
            turns[-1]["done"] = time.time_ns() // 1000
        return cls(turns, np.empty(0, _WHEN), max(0, len(turns) - 1))

    def turn(self, records: pa.Table | None, moving: tuple[int, ...]) -> None:
        """Takes the records of a turn, whose results are to be sent."""
        if records is None or not len(records) or records.column("time").null_count:
            self.sent = np.empty(0, _WHEN)
            return
        self.sent = np.zeros(len(records), _WHEN)
        self.sent["time"] = records.column("time").to_numpy()
        self.sent["moved"] = are_moved(records, moving)

    def arrived(self) -> None:
        """Takes in that the results of the last turn have arrived."""
        self.sent["done"] = time.time_ns() // 1000
        self.stored = len(self.turns)
        self.turns.append(self.sent)
        self.sent = np.empty(0, _WHEN)

    def write(self, txn: lmdb.Transaction) -> None:
        """Stores with a turn what is not stored: the turn, and when the results of the one before it arrived.

        Nobody looks for damage beside them, as they are figures alone: what a turn needs comes before them.
        """
        for number, part in enumerate([*self.turns[self.stored :], self.sent], self.stored):
            name = _item(number)
            txn.put(name, checked(name, part.tobytes()))

    def cells(self) -> tuple[bytes, int]:
        """Returns the cells, dtype CELL, and how many latencies were below 0."""
        when = np.concatenate([np.empty(0, _WHEN), *self.turns])
        cells, negative = make_cells(when["time"], when["done"], when["moved"])
        return cells.tobytes(), negative


def end_latencies(txn: lmdb.Transaction, tick: int, cells: bytes) -> None:
    """Stores the cells of a tick with the turn that ends it, in place of its latencies."""
    put_of_epoch(txn, _ENDED, tick, cells)
    drop_range(txn, _NOW, _LATENCIES_END)


def ended_cells(txn: lmdb.Transaction, tick: int) -> bytes:
    """Returns the cells with which a tick ended, none if another one has ended since."""
    return get_of_epoch(txn, _ENDED, tick) or b""


STEPS = ("to_router", "route", "to_worker", "wait", "apply", "commit", "log", "send")
"""From the scheduled time to F, in F, to S, for the turn before, and the phases of the turn."""
_STAMPED = STEPS[1:4]
_PHASES = {"drop": "apply", "pull": "apply", "apply": "apply", "commit": "commit", "log": "log", "send": "send"}


class Breakdown:
    """begin() with the blobs of a turn, done() with its phases; means() at the end of a tick."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(STEPS, 0.0)
        self._records = self._turn = 0

    def begin(self, blobs: Sequence[Blob]) -> None:
        """Takes the stamps of a turn's blobs."""
        now_us, self._turn = time.time_ns() // 1000, 0
        for blob in blobs:
            records = len(blob.table)
            if not records or blob.came_us < 0 or (due_us := _mean(blob.table.column("time"))) is None:
                continue
            stamps = (due_us, blob.came_us, blob.packed_us, blob.read_us, now_us)
            for step, before, after in zip(("to_router", *_STAMPED), stamps, stamps[1:], strict=False):
                self._sums[step] += records * (after - before) / 1e3
            self._turn += records
        self._records += self._turn

    def done(self, ms: Mapping[str, float]) -> None:
        """Takes the milliseconds of the turn's phases: all of its records wait for each."""
        for phase, step in _PHASES.items():
            self._sums[step] += self._turn * ms.get(phase, 0.0)

    def means(self) -> dict[str, float]:
        """Returns milliseconds by step, {} without records."""
        return {step: round(total / self._records, 3) for step, total in self._sums.items()} if self._records else {}


def _mean(times: pa.ChunkedArray) -> float | None:
    """Returns the mean of times, None where one is missing; there is at least one."""
    if times.null_count:
        return None
    # ndarray.mean() does the same and takes 7 µs more for a blob; a sum in int64 overflows from about 5,000 times on
    return float(np.add.reduce(times.to_numpy(), dtype=np.float64)) / len(times)
