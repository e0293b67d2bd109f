"""What a worker does in an epoch of an operator with event time: the same for owners and for shadows.

A *turn* is what bins get in one epoch: the watermark, what was merged for them, and records. A bin whose state is not
here yet keeps its turns in its queue and takes them, oldest first, when the state has come. Within a turn timers come
first. So a turn need only be kept for epochs in which something arrived: timers that a skipped epoch would have fired
are fired by the next turn, before anything else happens to the bin, and in the same order of (time, key), for firing
up to w1 and then up to w2 is firing up to w2. What a bin computes therefore does not depend on when it moved.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.operators.base import Operator
from impls.operators.timed import TimedOperator
from impls.protocol.eventtime import Partial, merge_partials
from impls.store.keyed import Keyed
from impls.store.queue import put_queued
from impls.store.records import Results, concat, to_bytes
from impls.store.state import BinState

__all__ = ["Turn", "Turned", "add_turns", "highest_times", "queued_turns", "run_turns"]

_META = b"turn"


@dataclass(frozen=True)
class Turn:
    """One epoch's input of the bins that are marked: bool of shape (B,)."""

    bins: NDArray[np.bool_]
    watermark: int | None
    records: pa.Table | None = None
    merged: Sequence[Partial] = ()


@dataclass
class Turned:
    """The effects of turns: results, partials merged within the worker, late records, timers fired."""

    results: Results = field(default_factory=Results.none)
    partials: list[Partial] = field(default_factory=list)
    late: int = 0
    fired: int = 0


def run_turns(operator: Operator, state: BinState, turns: Iterable[Turn]) -> Turned:
    """Runs turns, oldest first, on the state of bins that are here."""
    assert isinstance(operator, TimedOperator), "an operator with event time is a TimedOperator"
    keyed, out = Keyed(state), Turned()
    for turn in turns:
        keyed.watermark = turn.watermark
        if turn.watermark is not None and (due := state.bins_with_timers(turn.bins, turn.watermark)):
            out.fired += keyed.fire(due, turn.watermark, lambda b, time, key: operator.on_timer(b, time, key, keyed))
        for partial in turn.merged:
            operator.on_merged(partial, keyed)
        records = turn.records
        if records is not None and turn.watermark is not None:
            late = _times(records, operator) < turn.watermark
            out.late += int(late.sum())
            records = records.filter(pa.array(~late)) if operator.late == "drop" and late.any() else records
        if records is not None and len(records):
            operator.on_records(records, keyed)
        keyed.flush()
    bins, keys, payloads = keyed.emitted
    out.results = Results(np.array(bins, np.int32), keys, payloads)
    out.partials = merge_partials(keyed.partials, operator.merge)
    return out


def _times(records: pa.Table, operator: TimedOperator) -> NDArray[np.int64]:
    times: NDArray[np.int64] = records.column(operator.event_time.column).to_numpy()
    return times


def highest_times(records: pa.Table, operator: Operator) -> list[list[int]]:
    """Returns [partition, highest event time] of records."""
    assert isinstance(operator, TimedOperator), "an operator with event time is a TimedOperator"
    partitions, times = records.column("partition").to_numpy(), _times(records, operator)
    return [[p, int(times[partitions == p].max())] for p in np.unique(partitions).tolist()]


def _with_turn(records: pa.Table, epoch: int, watermark: int | None, merged: Sequence[Partial]) -> pa.Table:
    """Returns records of a bin, as they wait in its queue, with the rest of their turn."""
    turn = {"epoch": epoch, "watermark": watermark, "merged": [partial.to_json() for partial in merged]}
    return records.replace_schema_metadata({_META: json.dumps(turn).encode()})


def queued_turns(tables: Iterable[pa.Table], bins: int) -> list[Turn]:
    """Returns the turns that `with_turn` made of one worker's queues, oldest first; bins of one epoch together."""
    epochs: dict[int, list[tuple[pa.Table, int | None, list[Partial]]]] = {}
    for table in tables:
        turn = json.loads(table.schema.metadata[_META])
        merged = [Partial.from_json(partial) for partial in turn["merged"]]
        epochs.setdefault(turn["epoch"], []).append((table, turn["watermark"], merged))
    turns = []
    for _, parts in sorted(epochs.items()):
        partials = sorted((p for _, _, merged in parts for p in merged), key=lambda p: (p.time, p.key))
        records = [table for table, _, _ in parts if len(table)]
        mask = np.zeros(bins, bool)
        mask[[partial.bin for partial in partials]] = True
        for table in records:
            mask[table.column("bin").to_numpy()] = True
        turns.append(Turn(mask, parts[0][1], concat(records) if records else None, partials))
    return turns


def add_turns(txn: lmdb.Transaction, epoch: int, turn: Turn) -> list[tuple[int, bytes | None]]:
    """Appends an epoch's turn to the queues of its bins, of those that get something in it; else as `add_to_queues`.

    What was merged counts as records, so that a queue of nothing else is no empty queue.
    """
    records = turn.records if turn.records is not None else pa.table({"bin": pa.array([], pa.int32())})
    bins = records.column("bin").to_numpy()
    added: list[tuple[int, bytes | None]] = []
    for bin_ in sorted({*np.unique(bins).tolist(), *(partial.bin for partial in turn.merged)}):
        merged = [partial for partial in turn.merged if partial.bin == bin_]
        part = _with_turn(records.filter(pa.array(bins == bin_)), epoch, turn.watermark, merged)
        number = (len(part) + len(merged)).to_bytes(4, "little")
        added.append((bin_, epoch.to_bytes(6, "big") + number + to_bytes(part)))
        put_queued(txn, bin_, added[-1][1] or b"")
    return added
