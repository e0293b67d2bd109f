"""Spark's `groupBy(keys).agg(...)` as operators whose state moves: `Aggregate`, and `WindowAggregate` of windows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.operators.aggregates.folds import Groups
from impls.operators.aggregates.measures import Buffer, Measure
from impls.operators.aggregates.rows import RowCodec, arrow_type, key_type
from impls.operators.base import Effects, Input, Operator, RecordOperator, quoted
from impls.operators.rowjson import Written, json_rows, zone_of
from impls.protocol.eventtime import EventTime, whole_ms
from impls.store.naming import EXPIRY, note_earliest, timer_name, timer_of, timers_until
from impls.store.records import Results
from impls.store.state import BinState


@dataclass(frozen=True)
class Keys:
    """The distinct keys of records, in the order in which the store has them.

    Attributes:
        names: the keys.
        bins: of each its bin, int32.
        first: of each the index of a record.
        groups: which key each record has.
    """

    names: list[bytes]
    bins: NDArray[np.int32]
    first: NDArray[np.int64]
    groups: Groups


def _keys_of(records: pa.Table) -> Keys:
    """Returns the keys of records."""
    keys = records.column("key").combine_chunks().dictionary_encode()
    of = keys.indices.to_numpy().astype(np.int64)
    first = np.unique(of, return_index=True)[1]  # keys are numbered in the order of their first record
    bins = records.column("bin").to_numpy()[first]
    found = pa.table({"bin": bins, "key": keys.dictionary})
    order = pc.sort_indices(found, sort_keys=[("bin", "ascending"), ("key", "ascending")]).to_numpy()
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    names = keys.dictionary.take(pa.array(order)).to_pylist()
    return Keys(names, bins[order], first[order], Groups(place[of], len(order)))


class Aggregate(RecordOperator):
    """Keeps count, sum, min, max and avg per key; sends, per key and epoch, the key's row after the epoch as JSON.

    >>> sales = Aggregate({"user": "string"}, {"n": "count(*)", "total": "sum(amount)"}, {"amount": "double"})
    >>> [buffer.type for buffer in sales.buffers]
    ['bigint', 'double']

    Attributes:
        keys: the key's columns with Spark's types; what distinguishes keys is the key column of `impls.stream`.
        measures: the aggregates.

    Args:
        keys: name and type of each column of the key, in order.
        values: name of each result and the aggregate, as in "avg(amount)"; at least one.
        types: type of each column that the aggregates read.
        zone: the session's time zone, in which results have times.
        micros: results have times to the microsecond, and not to the millisecond as Spark's `to_json`.
        ansi: the session's `spark.sql.ansi.enabled`: a sum or an average that does not fit is an error.

    Raises:
        UsageError: an aggregate, a type or the zone is unknown, or a name is used twice.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        values: Mapping[str, str],
        types: Mapping[str, str],
        *,
        zone: str = "UTC",
        micros: bool = False,
        ansi: bool = True,
    ):
        if not values:
            raise UsageError("An Aggregate needs at least one aggregate, as in {'n': 'count(*)'}.")
        if twice := set(keys) & set(values):
            raise UsageError(f"The name {min(twice)!r} is that of a key and of an aggregate: rename the aggregate.")
        self.keys = dict(keys)
        self.measures = tuple(Measure.parse(name, text, types, ansi=ansi) for name, text in values.items())
        read = [measure.column for measure in self.measures if measure.column]
        self.columns = tuple(dict.fromkeys([*self.keys, *read]))
        self._codec = RowCodec([arrow_type(buffer.type) for buffer in self.buffers])
        for kind in self.keys.values():
            key_type(kind)
        zone_of(zone)
        self._zone, self._micros = zone, micros
        results = {**self.keys, **{measure.name: measure.result_type for measure in self.measures}}
        self.output_schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in results.items())

    _zone, _micros = "UTC", False  # of one that was pickled before it had them

    @cached_property
    def _to_json(self) -> Written:
        keys = [(name, key_type(kind)) for name, kind in self.keys.items()]
        results = [(measure.name, arrow_type(measure.result_type)) for measure in self.measures]
        return json_rows(pa.schema([*keys, *results]), self._zone, micros=self._micros)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_to_json"}  # functions do not travel

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Refuses what was pickled when sums of decimals had other buffers, as state has them."""
        vars(self).update(state)
        if len(self._codec.kinds) != len(self.buffers):
            raise UsageError("These aggregates are of a version that kept sums of decimals otherwise: begin anew.")

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The columns of state, in Spark's order."""
        return tuple(buffer for measure in self.measures for buffer in measure.buffers)

    @property
    def codec(self) -> RowCodec:
        """How the buffers of a key are stored."""
        return self._codec

    def identity(self) -> dict[str, Any]:
        """Returns the key's columns, and of each aggregate name, function, column and the buffers in state, in order.

        Buffers alone do not tell sum(debit), sum(credit) from sum(credit), sum(debit), and those that have decimals
        without their point not where that was.
        """
        kept = [
            [m.name, m.function, m.column, *(buffer.type for buffer in m.buffers), *([m.type] if m.unscaled else [])]
            for m in self.measures
        ]
        return {"keys": [list(pair) for pair in self.keys.items()], "aggregates": kept}

    def state_form(self) -> dict[str, Any]:
        """Says how the buffers of a key become its results."""
        kept = [[measure.name, measure.function, measure.column, measure.type] for measure in self.measures]
        ansi = all(measure.ansi for measure in self.measures)
        return {**super().state_form(), "values": "aggregates", "keys": self.keys, "aggregates": kept, "ansi": ansi}

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> "Aggregate":
        """Returns the operator whose form is given; it reads state as that one does."""
        values = {
            name: f"{function}({quoted(column) if column else '*'})" for name, function, column, _ in form["aggregates"]
        }
        types = {column: kind for _, _, column, kind in form["aggregates"] if column}
        return cls(form["keys"], values, types, ansi=form["ansi"])

    def dump(self, value: Any) -> bytes:
        """Encodes the buffers of a key, one value each."""
        columns = [pa.array([part], kind) for part, kind in zip(value, self._codec.kinds, strict=True)]
        return self._codec.encode(columns)[0]

    def load(self, raw: bytes) -> Any:
        """Decodes the buffers of a key."""
        return tuple(column[0].as_py() for column in self._codec.decode([raw]))

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Aggregates the records of each key; see `Operator.apply`."""
        keys, buffers = self.take(records, state)
        rows = records.take(pa.array(keys.first)).select(list(self.keys))
        return Results(keys.bins, keys.names, self.payloads(rows, buffers))

    def take(self, records: pa.Table, state: BinState) -> tuple[Keys, list[list[pa.Array]]]:
        """Aggregates the records of each key, and returns the keys with each aggregate's buffers behind them."""
        keys = _keys_of(records)
        places = keys.bins.tolist()
        old = state.get_many(places, keys.names)
        buffers = self._fold(records, keys.groups, self._codec.decode(old))
        state.put_many(places, keys.names, self._codec.encode([part for own in buffers for part in own]), old)
        return keys, buffers

    def buffers_of(self, rows: Sequence[bytes]) -> list[list[pa.Array]]:
        """Returns each aggregate's buffers of stored rows."""
        columns = iter(self._codec.decode(rows))
        return [[next(columns) for _ in measure.buffers] for measure in self.measures]

    def _fold(self, records: pa.Table, groups: Groups, before: list[pa.Array]) -> list[list[pa.Array]]:
        """Returns each aggregate's buffers behind the records."""
        out, left = [], iter(before)
        for measure in self.measures:
            own = [next(left) for _ in measure.buffers]
            values = records.column(measure.column).combine_chunks() if measure.column else None
            out.append(measure.fold(own, values, groups))
        return out

    def payloads(self, rows: pa.Table, buffers: list[list[pa.Array]]) -> list[bytes]:
        """Returns the results; `rows` has the columns of each key."""
        results = [measure.result(own) for measure, own in zip(self.measures, buffers, strict=True)]
        names = [*self.keys, *(measure.name for measure in self.measures)]
        return self._to_json(pa.table([*(rows.column(key) for key in self.keys), *results], names))


EVENT, END = "event_us", "window_end_us"  # columns of a record: its event time and the end of its window


class WindowAggregate(Operator):
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

    def state_form(self) -> dict[str, Any]:
        """Returns that of the aggregates, beside which expiries stand, and the output mode."""
        mode = "update" if self._key_columns is None else "append"
        return {**self.aggregate.state_form(), "output_mode": mode}

    def run(self, state: BinState, inputs: Sequence[Input]) -> Effects:
        """Runs inputs, oldest first."""
        out, results = Effects(), list[Results]()
        for one in inputs:
            assert one.clock is not None, "the plan of an operator with a clock has one"
            records = one.records
            if records is not None:
                late = records.column(END).to_numpy() <= _passed(one.clock.late)
                out.late += int(late.sum())
                records = records.filter(pa.array(~late)) if late.any() else records
            if records is not None and len(records):
                results += self._apply(records, state)
                _note(state, records)
            for bin_ in state.bins_with_timers(one.bins, _passed(one.watermark)):
                expired = state.scan(bin_, *timers_until(_passed(one.watermark), EXPIRY))
                keys = [timer_of(*note)[1] for note in expired]
                results += self._closed(state, bin_, keys)
                for name in (*keys, *(name for name, _ in expired)):
                    state.delete(bin_, name)
                note_earliest(state, [bin_], (EXPIRY,))
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
    """Notes when the keys of records are forgotten: an expiry of each at the end of its window, µs.

    A key's row is stored under the key itself, which begins with 0 or 1, so that no expiry has the name of one.
    """
    keys = _keys_of(records)
    ends = records.column(END).to_numpy()[keys.first].tolist()
    notes = [timer_name(end, key, EXPIRY) for end, key in zip(ends, keys.names, strict=True)]
    known = state.get_many(keys.bins.tolist(), [name for name, _ in notes])
    new = [(bin_, *note) for bin_, note, there in zip(keys.bins.tolist(), notes, known, strict=True) if there is None]
    if new:
        bins, names, values = zip(*new, strict=True)
        state.put_many(bins, names, values, [None] * len(new))
        note_earliest(state, set(bins), (EXPIRY,))
