"""`WindowAggregate`: aggregates of keys with a time window, which are forgotten when the watermark has passed it."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from impls.errors import UsageError
from impls.operators.aggregates.operator import Aggregate, keys_of
from impls.operators.timed import TimedOperator
from impls.operators.turn import Turn, Turned
from impls.protocol.eventtime import EventTime, whole_ms
from impls.store.keyed import Keyed
from impls.store.records import Results
from impls.store.state import BinState

__all__ = ["END", "EVENT", "EXPIRY", "WindowAggregate", "expiry_name"]

EVENT, END = "event_us", "window_end_us"  # columns of a record: its event time and the end of its window
EXPIRY = b"\2"  # begins the names of expiries; those of keys begin with 0 or 1
_PAST = b"\3"
_BIAS = 1 << 63
_KEY_MAX = 450  # a longer one would be stored as its hash, and an expiry gives its key back


def expiry_name(end: int, key: bytes = b"") -> bytes:
    """Returns the name of the entry that says when a key is forgotten: at the end of its window, µs."""
    return EXPIRY + (end + _BIAS).to_bytes(8, "big") + key


class WindowAggregate(TimedOperator):
    """Aggregates as `Aggregate` does, of keys with a window; as in Spark's update mode.

    A record whose window the watermark of the epoch before has passed is late and left out. A key whose window the
    epoch's watermark has passed is forgotten behind the epoch's records.

    Args:
        aggregate: keys and aggregates.
        event_time: of the records, µs in the column EVENT; its watermark is Spark's.
    """

    def __init__(self, aggregate: Aggregate, event_time: EventTime):
        self.aggregate, self.event_time = aggregate, event_time
        self.columns = (*aggregate.columns, EVENT, END)
        self.output_schema = aggregate.output_schema

    def identity(self) -> dict[str, object]:
        """Returns the identity of the aggregates."""
        return self.aggregate.identity()

    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Refuses: windows are aggregated in whole turns."""
        raise UsageError("A WindowAggregate runs whole turns: give it to the worker core.")

    def run(self, state: BinState, turns: Iterable[Turn]) -> Turned:
        """Runs turns, oldest first."""
        out, results = Turned(), list[Results]()
        for turn in turns:
            assert turn.clock is not None, "the plan of an operator with a clock has one"
            records = turn.records
            if records is not None:
                late = records.column(END).to_numpy() <= _passed(turn.clock.late)
                out.late += int(late.sum())
                records = records.filter(pa.array(~late)) if late.any() else records
            if records is not None and len(records):
                results.append(self.aggregate.apply(records, state))
                _note(state, records)
            for bin_ in state.bins_with_timers(turn.bins, _passed(turn.watermark)):
                out.fired += _forget(state, bin_, _passed(turn.watermark))
        out.results = Results.joined(results)
        return out


def _passed(watermark: int | None) -> int:
    return 1000 * whole_ms(watermark)


def _note(state: BinState, records: pa.Table) -> None:
    """Notes when the keys of records are forgotten."""
    keys = keys_of(records)
    if max(map(len, keys.names)) > _KEY_MAX:
        raise UsageError(f"The grouping key of a window is longer than {_KEY_MAX} bytes: shorten it.")
    ends = records.column(END).to_numpy()[keys.first].tolist()
    bins, names = keys.bins.tolist(), [expiry_name(end, key) for end, key in zip(ends, keys.names, strict=True)]
    known = state.get_many(bins, names)
    new = [n for n, there in enumerate(known) if there is None]
    if new:
        own = [bins[n] for n in new]
        state.put_many(own, [names[n] for n in new], [b""] * len(new), [None] * len(new))
        for bin_ in np.unique(own).tolist():
            _note_earliest(state, bin_)


def _note_earliest(state: BinState, bin_: int) -> None:
    first = state.first(bin_, EXPIRY, _PAST)
    state.set_earliest_timer(bin_, None if first is None else int.from_bytes(first[1:9], "big") - _BIAS)


def _forget(state: BinState, bin_: int, until: int) -> int:
    """Deletes the keys of a bin whose windows end by a time, and returns their number."""
    expired = [name for name, _ in state.scan(bin_, EXPIRY, expiry_name(until + 1))]
    for name in expired:
        state.delete(bin_, name[9:])
        state.delete(bin_, name)
    _note_earliest(state, bin_)
    return len(expired)
