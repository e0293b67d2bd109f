"""Inputs of the operator, and how those of bins whose state is not here wait in queues.

An *input* is what bins get in one commit: the watermark, what was merged for them, and records. A bin whose state is
not here yet keeps its inputs in its queue and takes them, oldest first, when the state has come. Within an input timers
come first. So an input need only be kept for commits in which something arrived: timers that a skipped one would have
fired are fired by the next, before anything else happens to the bin, and in the same order, for firing
up to w1 and then up to w2 is firing up to w2. What a bin computes therefore does not depend on when it moved.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import lmdb
import numpy as np
import pyarrow as pa

from impls.operators.base import Input, Operator
from impls.protocol.eventtime import EpochClock, Partial
from impls.store.records import EPOCH_BYTES, concat, put_queued, queued_records, to_bytes
from impls.worker.refused import acceptable

_META = b"input"


def highest_times(records: pa.Table, operator: Operator) -> list[list[int]]:
    """Returns [partition, highest event time] of records, those left out that no operator can be given; [] for none."""
    assert operator.event_time is not None, "the operator has event time"
    column, records = operator.event_time.column, acceptable(operator, records)
    partitions, times = records.column("partition").to_numpy(), records.column(column).to_numpy()
    return [[p, int(times[partitions == p].max())] for p in np.unique(partitions).tolist()]


def _with_rest(records: pa.Table, one: Input, bin_: int) -> pa.Table:
    """Returns records of a bin, as they wait in its queue, with the rest of their input."""
    rest = {"watermark": one.watermark, "merged": [partial.to_json() for partial in one.merged]}
    if one.clock is not None:
        waited = (bin_,) if bin_ in one.clock.waited else ()
        rest["clock"] = replace(one.clock, waited=waited).to_json()
    return records.replace_schema_metadata({_META: json.dumps(rest).encode()})


def queued_inputs(parts: Iterable[tuple[int, pa.Table]], bins: int) -> list[Input]:
    """Returns the inputs that `queue_input` made of one worker's queues, oldest first; bins of one commit together.

    Args:
        parts: number and records of each.
        bins: number of bins.
    """
    numbers: dict[int, list[Input]] = {}
    none = np.zeros(0, bool)
    for number, table in parts:
        rest = json.loads(table.schema.metadata[_META])
        merged = [Partial.from_json(partial) for partial in rest["merged"]]
        clock = EpochClock.from_json(rest["clock"]) if "clock" in rest else None
        numbers.setdefault(number, []).append(Input(none, rest["watermark"], table, merged, clock))
    inputs = []
    for _, group in sorted(numbers.items()):
        partials = sorted((p for part in group for p in part.merged), key=lambda p: (p.time, p.key))
        records = [part.records for part in group if part.records is not None and len(part.records)]
        mask = np.zeros(bins, bool)
        mask[[partial.bin for partial in partials]] = True
        for table in records:
            mask[table.column("bin").to_numpy()] = True
        inputs.append(Input(mask, group[0].watermark, concat(records) if records else None, partials, _clock(group)))
    return inputs


def _clock(group: Sequence[Input]) -> EpochClock | None:
    """Returns the times of a commit's input from its parts, each of which knows of its own bin whether it waited."""
    clock = group[0].clock
    if clock is None:
        return None
    return replace(clock, waited=tuple(bin_ for part in group if part.clock for bin_ in part.clock.waited))


def queue_input(txn: lmdb.Transaction, number: int, one: Input) -> list[tuple[int, bytes | None]]:
    """Appends a commit's input to the queues of its bins, of those that get something, and returns (bin, stored part).

    What was merged counts as records, so that a queue of nothing else is no empty queue.
    """
    records = one.records if one.records is not None else pa.table({"bin": pa.array([], pa.int32())})
    bins = records.column("bin").to_numpy()
    added: list[tuple[int, bytes | None]] = []
    for bin_ in sorted({*np.unique(bins).tolist(), *(partial.bin for partial in one.merged)}):
        merged = [partial for partial in one.merged if partial.bin == bin_]
        part = _with_rest(records.filter(pa.array(bins == bin_)), replace(one, merged=merged), bin_)
        length = (len(part) + len(merged)).to_bytes(4, "little")
        stored = number.to_bytes(EPOCH_BYTES, "big") + length + to_bytes(part)
        put_queued(txn, bin_, stored)
        added.append((bin_, stored))
    return added


def without_records(stored: bytes) -> bytes:
    """Returns a part of a queue, as `queue_input` stored it, with what was merged alone; b"" if there is nothing."""
    table = queued_records(stored)
    rest = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
    if not rest.get("merged"):
        return b""
    return stored[:EPOCH_BYTES] + len(rest["merged"]).to_bytes(4, "little") + to_bytes(table.slice(0, 0))
