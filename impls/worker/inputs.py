"""Inputs of the operator, and how those of bins whose state is not here wait in queues.

An *input* is what bins get in one commit: the watermark and records. A bin whose state is not here yet keeps its inputs
in its queue and takes them, oldest first, when the state has come. Within an input timers come first. So an input need
only be kept for commits in which something arrived: timers that a skipped one would have fired are fired by the next,
before anything else happens to the bin, and in the same order, for firing up to w1 and then up to w2 is firing up to
w2. What a bin computes therefore does not depend on when it moved.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa

from impls.operators.base import Input, Operator
from impls.protocol.eventtime import EpochClock
from impls.store.records import EPOCH_BYTES, concat, put_queued, to_bytes
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
    rest: dict[str, Any] = {"watermark": one.watermark}
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
        clock = EpochClock.from_json(rest["clock"]) if "clock" in rest else None
        numbers.setdefault(number, []).append(Input(none, rest["watermark"], table, clock))
    inputs = []
    for _, group in sorted(numbers.items()):
        records = [part.records for part in group if part.records is not None and len(part.records)]
        mask = np.zeros(bins, bool)
        for table in records:
            mask[table.column("bin").to_numpy()] = True
        inputs.append(Input(mask, group[0].watermark, concat(records) if records else None, _clock(group)))
    return inputs


def _clock(group: Sequence[Input]) -> EpochClock | None:
    """Returns the times of a commit's input from its parts, each of which knows of its own bin whether it waited."""
    clock = group[0].clock
    if clock is None:
        return None
    return replace(clock, waited=tuple(bin_ for part in group if part.clock for bin_ in part.clock.waited))


def queue_input(txn: lmdb.Transaction, number: int, one: Input) -> list[tuple[int, bytes | None]]:
    """Appends a commit's input to the queues of the bins that get records, and returns (bin, stored part)."""
    added: list[tuple[int, bytes | None]] = []
    if one.records is None:
        return added
    bins = one.records.column("bin").to_numpy()
    for bin_ in np.unique(bins).tolist():
        part = _with_rest(one.records.filter(pa.array(bins == bin_)), one, bin_)
        stored = number.to_bytes(EPOCH_BYTES, "big") + len(part).to_bytes(4, "little") + to_bytes(part)
        put_queued(txn, bin_, stored)
        added.append((bin_, stored))
    return added
