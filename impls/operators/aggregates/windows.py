"""`WindowAggregate`: aggregates of keys with a time window, which are forgotten when the watermark has passed it."""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from impls.errors import UsageError
from impls.operators.aggregates.operator import Aggregate, keys_of
from impls.operators.timed import TimedOperator, Turn, Turned
from impls.protocol.eventtime import EventTime, whole_ms
from impls.store.keyed import Keyed
from impls.store.records import Results
from impls.store.state import BinState

EVENT, END = "event_us", "window_end_us"  # columns of a record: its event time and the end of its window
EXPIRY = b"\2"  # begins the names of expiries; those of keys begin with 0 or 1
_PAST = b"\3"
_BIAS = 1 << 63
_KEY_MAX = 450  # a longer one would be stored as its hash, and an expiry gives its key back


def expiry_name(end: int, key: bytes = b"") -> bytes:
    """Returns the name of the entry that says when a key is forgotten: at the end of its window, µs."""
    return EXPIRY + (end + _BIAS).to_bytes(8, "big") + key


class WindowAggregate(TimedOperator):
    """Aggregates as `Aggregate` does, of keys with a window; as in Spark's update mode, or in its append mode.

    A record whose window the watermark of the epoch before has passed is late and left out. A key whose window the
    epoch's watermark has passed is forgotten behind the epoch's records. In append mode that is when its row is sent,
    and the only time.

    Args:
        aggregate: keys and aggregates.
        event_time: of the records, µs in the column EVENT; its watermark is Spark's.
        key_columns: in append mode, returns the columns of keys, given as bytes; None in update mode.
    """

    def __init__(
        self, aggregate: Aggregate, event_time: EventTime, key_columns: Callable[[list[bytes]], pa.Table] | None = None
    ):
        self.aggregate, self.event_time, self._key_columns = aggregate, event_time, key_columns
        self.columns = (*aggregate.columns, EVENT, END)
        self.output_schema = aggregate.output_schema

    def identity(self) -> dict[str, object]:
        """Returns the identity of the aggregates, and the output mode where it is append."""
        own = self.aggregate.identity()
        return own if self._key_columns is None else {**own, "output_mode": "append"}

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
                results += self._apply(records, state)
                _note(state, records)
            for bin_ in state.bins_with_timers(turn.bins, _passed(turn.watermark)):
                expired = [name for name, _ in state.scan(bin_, EXPIRY, expiry_name(_passed(turn.watermark) + 1))]
                results += self._closed(state, bin_, [name[9:] for name in expired])
                _forget(state, bin_, expired)
                out.fired += len(expired)
        out.results = Results.joined(results)
        return out

    def _apply(self, records: pa.Table, state: BinState) -> list[Results]:
        if self._key_columns is None:
            return [self.aggregate.apply(records, state)]
        self.aggregate.take(records, state)
        return []

    def _closed(self, state: BinState, bin_: int, keys: list[bytes]) -> list[Results]:
        """Returns the final rows of keys whose windows have passed; none in update mode, which has sent them."""
        if self._key_columns is None or not keys:
            return []
        rows = [row for row in state.get_many([bin_] * len(keys), keys) if row is not None]
        assert len(rows) == len(keys), "a key has an expiry as long as it has a row"
        payloads = self.aggregate.payloads(self._key_columns(keys), self.aggregate.buffers_of(rows))
        return [Results(np.full(len(keys), bin_, np.int32), keys, payloads)]


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


def _forget(state: BinState, bin_: int, expired: list[bytes]) -> None:
    """Deletes keys of a bin, given by the names of their expiries."""
    for name in expired:
        state.delete(bin_, name[9:])
        state.delete(bin_, name)
    _note_earliest(state, bin_)
