"""What a worker does in an epoch of an operator with event time: turns from queues and records, and their effects.

It is the same for owners and for standbys.

A *turn* is what bins get in one epoch: the watermark, what was merged for them, and records. A bin whose state is not
here yet keeps its turns in its queue and takes them, oldest first, when the state has come. Within a turn timers come
first. So a turn need only be kept for epochs in which something arrived: timers that a skipped epoch would have fired
are fired by the next turn, before anything else happens to the bin, and in the same order of (time, key), for firing
up to w1 and then up to w2 is firing up to w2. What a bin computes therefore does not depend on when it moved.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.operators.base import Operator
from impls.operators.timed import TimedOperator, Turn, Turned, valid_times
from impls.protocol.eventtime import EpochClock, Partial, merge_partials
from impls.protocol.report import EventTimes, Report
from impls.store.queues import QueueIndex
from impls.store.records import ROW, Results, concat, joined, put_queued, queued_records, to_bytes
from impls.store.state import BinState
from impls.worker.query import Task
from impls.worker.refused import without_set_aside
from impls.worker.versions import Attempt, Running

_META = b"turn"
_PLACE = ("bin", "partition", "offset", "time", ROW)
_NO_BINS = np.zeros(0, bool)


def _run_versions(task: Task, running: Running, turns: Sequence[Turn]) -> Turned:
    """Runs turns, oldest first, those of each bin under its version."""
    running.fit(_touched(running.state, turns))
    parts = []
    for number, mask in running.groups(np.arange(task.spec.bins, dtype=np.int32)):
        own = [_of_bins(turn, mask) for turn in turns]
        with running.blamed(number):
            parts.append(_timed(running.operator(number)).run(running.state, own))
    merged = merge_partials([p for part in parts for p in part.partials], _timed(task.spec.operator).merge)
    late, fired = sum(part.late for part in parts), sum(part.fired for part in parts)
    return Turned(Results.joined([part.results for part in parts]), merged, late, fired)


def _touched(state: BinState, turns: Iterable[Turn]) -> list[int]:
    """Returns the bins for which turns have a record, a merged value, or a timer that is due."""
    bins: set[int] = set()
    for turn in turns:
        bins |= {partial.bin for partial in turn.merged}
        if turn.records is not None:
            bins |= set(turn.records.column("bin").to_pylist())
        if turn.watermark is not None:
            bins |= set(state.bins_with_timers(turn.bins, turn.watermark))
    return sorted(bins)


def _of_bins(turn: Turn, mask: NDArray[np.bool_]) -> Turn:
    records = turn.records
    own = None if records is None else records.filter(pa.array(mask[records.column("bin").to_numpy()]))
    merged = [partial for partial in turn.merged if mask[partial.bin]]
    return replace(turn, bins=turn.bins & mask, records=own, merged=merged)


def _timed(operator: Operator) -> TimedOperator:
    assert isinstance(operator, TimedOperator), "an operator with event time is a TimedOperator"
    return operator


def _times(records: pa.Table, operator: TimedOperator) -> NDArray[np.int64]:
    times: NDArray[np.int64] = records.column(operator.event_time.column).to_numpy()
    return times


def highest_times(records: pa.Table, operator: Operator) -> list[list[int]]:
    """Returns [partition, highest event time] of records, those without either left out; [] for none."""
    assert isinstance(operator, TimedOperator), "an operator with event time is a TimedOperator"
    valid = valid_times(records.column(operator.event_time.column))
    if (partition := records.column("partition")).null_count:
        valid &= partition.is_valid().to_numpy()
    records = records if valid.all() else records.filter(pa.array(valid))
    partitions, times = records.column("partition").to_numpy(), _times(records, operator)
    return [[p, int(times[partitions == p].max())] for p in np.unique(partitions).tolist()]


def _with_turn(records: pa.Table, epoch: int, of_turn: Turn, bin_: int) -> pa.Table:
    """Returns records of a bin, as they wait in its queue, with the rest of their turn."""
    turn = {"epoch": epoch, "watermark": of_turn.watermark, "merged": [partial.to_json() for partial in of_turn.merged]}
    if of_turn.clock is not None:
        waited = (bin_,) if bin_ in of_turn.clock.waited else ()
        turn["clock"] = replace(of_turn.clock, waited=waited).to_json()
    return records.replace_schema_metadata({_META: json.dumps(turn).encode()})


def _queued_turns(tables: Iterable[pa.Table], bins: int) -> list[Turn]:
    """Returns the turns that `_with_turn` made of one worker's queues, oldest first; bins of one epoch together."""
    epochs: dict[int, list[Turn]] = {}
    for table in tables:
        turn = json.loads(table.schema.metadata[_META])
        merged = [Partial.from_json(partial) for partial in turn["merged"]]
        clock = EpochClock.from_json(turn["clock"]) if "clock" in turn else None
        epochs.setdefault(turn["epoch"], []).append(Turn(_NO_BINS, turn["watermark"], table, merged, clock))
    turns = []
    for _, parts in sorted(epochs.items()):
        partials = sorted((p for part in parts for p in part.merged), key=lambda p: (p.time, p.key))
        records = [part.records for part in parts if part.records is not None and len(part.records)]
        mask = np.zeros(bins, bool)
        mask[[partial.bin for partial in partials]] = True
        for table in records:
            mask[table.column("bin").to_numpy()] = True
        turns.append(Turn(mask, parts[0].watermark, concat(records) if records else None, partials, _clock(parts)))
    return turns


def _clock(parts: Sequence[Turn]) -> EpochClock | None:
    """Returns the times of an epoch's turn from its parts, each of which knows of its own bin whether it waited."""
    clock = parts[0].clock
    if clock is None:
        return None
    return replace(clock, waited=tuple(bin_ for part in parts if part.clock for bin_ in part.clock.waited))


def add_turns(txn: lmdb.Transaction, epoch: int, turn: Turn) -> list[tuple[int, bytes | None]]:
    """Appends an epoch's turn to the queues of its bins, of those that get something in it; else as `add_to_queues`.

    What was merged counts as records, so that a queue of nothing else is no empty queue.
    """
    records = turn.records if turn.records is not None else pa.table({"bin": pa.array([], pa.int32())})
    bins = records.column("bin").to_numpy()
    added: list[tuple[int, bytes | None]] = []
    for bin_ in sorted({*np.unique(bins).tolist(), *(partial.bin for partial in turn.merged)}):
        merged = [partial for partial in turn.merged if partial.bin == bin_]
        part = _with_turn(records.filter(pa.array(bins == bin_)), epoch, replace(turn, merged=merged), bin_)
        number = (len(part) + len(merged)).to_bytes(4, "little")
        added.append((bin_, epoch.to_bytes(6, "big") + number + to_bytes(part)))
        put_queued(txn, bin_, added[-1][1] or b"")
    return added


def without_records(stored: bytes) -> bytes:
    """Returns a part of a queue, as `add_turns` stored it, with what was merged alone; b"" if there is nothing."""
    table = queued_records(stored)
    turn = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
    if not turn.get("merged"):
        return b""
    return stored[:6] + len(turn["merged"]).to_bytes(4, "little") + to_bytes(table.slice(0, 0))


@dataclass(frozen=True)
class TimedInput:
    """What a transaction gets.

    Attributes:
        number: of its turn, under which it is queued; numbers of a worker grow.
        records: of the worker's bins, None for none.
        queues: what waits.
        merged: partials to deliver to their bins.
        new: leaves out of records of bins that are here what was applied before; None where nothing comes twice.
    """

    number: int
    records: pa.Table | None
    queues: QueueIndex
    merged: Sequence[Partial] = ()
    new: Callable[[pa.Table], pa.Table] | None = None


@dataclass(frozen=True)
class _Applied:
    """The state after the turns, results, the records that were applied, and the queue operations in order."""

    state: BinState
    results: Results
    records: pa.Table | None
    queue: list[tuple[int, bytes | None]]


def apply_timed(
    task: Task,
    txn: lmdb.Transaction,
    inputs: TimedInput,
    blocked: set[int],
    *,
    report: Report,
    running: Running | None = None,
    trial: Callable[[pa.Table | None, Attempt], None] = lambda _table, _attempt: None,
) -> _Applied:
    """Runs a turn on the bins that are here, queues the turns of the others, and fills in the report.

    Args:
        task: the worker's task.
        txn: its transaction.
        inputs: what there is to do.
        blocked: bins, of this worker or not, that run nothing in this epoch.
        report: takes the part `event_time`.
        running: the versions of bins, None where there is one.
        trial: tries a version on records.
    """
    written, bins, operator, records = task.order.written, task.spec.bins, task.spec.operator, inputs.records

    def new(table: pa.Table) -> pa.Table:
        return without_set_aside(task, table if inputs.new is None else inputs.new(table), report)

    mine = written.plan.routing == task.worker
    waits = np.zeros(bins, bool)
    waits[list(blocked)] = True
    merged = [partial for partial in inputs.merged if mine[partial.bin]]
    ready = [bin_ for bin_ in inputs.queues.lengths if bin_ not in blocked]
    waited = inputs.queues.take(txn, ready)
    turns = _queued_turns((new(table) if len(table) else table for table in waited), bins)
    later, now = (
        Turn(
            mine & chosen,
            written.watermark,
            None if records is None else records.filter(pa.array(chosen[records.column("bin").to_numpy()])),
            [partial for partial in merged if chosen[partial.bin]],
            written.clock,
        )
        for chosen in (waits, ~waits)
    )
    queue = [(bin_, None) for bin_ in ready] + add_turns(txn, inputs.number, later)
    turns.append(now if now.records is None else replace(now, records=new(now.records)))
    state = BinState(txn, bins, careful=task.careful) if running is None else running.state
    if running is None:
        done = _timed(operator).run(state, turns)
    else:
        trial(now.records, lambda tried, few: _attempt(task, tried, few))
        done = _run_versions(task, running, turns)
    partials = [partial.to_json() for partial in done.partials]
    report.event_time = EventTimes(partials=partials, late=done.late, fired=done.fired)
    applied = [turn.records for turn in turns if turn.records is not None and len(turn.records)]
    timed = joined([_places(table) for table in applied]) if applied else None
    return _Applied(state, done.results, timed, queue)


def _places(table: pa.Table) -> pa.Table:
    return table.select([name for name in _PLACE if name in table.column_names])


def _attempt(task: Task, running: Running, records: pa.Table) -> None:
    mask = np.zeros(task.spec.bins, bool)
    mask[records.column("bin").to_numpy()] = True
    written = task.order.written
    _run_versions(task, running, [Turn(mask, written.watermark, records, clock=written.clock)])


def standby_timed(task: Task, state: BinState, bins: list[int], records: pa.Table | None) -> None:
    """Runs the epoch on standbys of bins, as their owners do, and discards the results."""
    mask = np.zeros(task.spec.bins, bool)
    mask[bins] = True
    merged = [partial for partial in task.order.written.merged if mask[partial.bin]]
    written = task.order.written
    turns, versions = [Turn(mask, written.watermark, records, merged, written.clock)], written.versions
    if versions is None:
        _timed(task.spec.operator).run(state, turns)
    else:
        _run_versions(task, Running.of_standbys(task, state), turns)
