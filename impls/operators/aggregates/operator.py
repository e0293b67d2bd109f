"""`Aggregate`: Spark's `groupBy(keys).agg(...)` in update mode, as an operator whose state moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.operators.aggregates.folds import Groups
from impls.operators.aggregates.measures import Buffer, Measure
from impls.operators.aggregates.rows import RowCodec, arrow_type, json_rows, key_type
from impls.operators.base import Operator
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


def keys_of(records: pa.Table) -> Keys:
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


class Aggregate(Operator):
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

    Raises:
        UsageError: an aggregate or a type is unknown, or a name is used twice.
    """

    def __init__(self, keys: Mapping[str, str], values: Mapping[str, str], types: Mapping[str, str]):
        if not values:
            raise UsageError("An Aggregate needs at least one aggregate, as in {'n': 'count(*)'}.")
        if twice := set(keys) & set(values):
            raise UsageError(f"The name {min(twice)!r} is that of a key and of an aggregate: rename the aggregate.")
        self.keys = dict(keys)
        self.measures = tuple(Measure.parse(name, text, types) for name, text in values.items())
        read = [measure.column for measure in self.measures if measure.column]
        self.columns = tuple(dict.fromkeys([*self.keys, *read]))
        self._codec = RowCodec([arrow_type(buffer.type) for buffer in self.buffers])
        for kind in self.keys.values():
            key_type(kind)
        results = {**self.keys, **{measure.name: measure.result_type for measure in self.measures}}
        self.output_schema = ", ".join(f"`{name}` {kind}" for name, kind in results.items())

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The columns of state, in Spark's order."""
        return tuple(buffer for measure in self.measures for buffer in measure.buffers)

    @property
    def codec(self) -> RowCodec:
        """How the buffers of a key are stored."""
        return self._codec

    def identity(self) -> dict[str, Any]:
        """Returns the key's columns, and the buffers of which state consists."""
        kept = [[measure.function, *(buffer.type for buffer in measure.buffers)] for measure in self.measures]
        return {"keys": [list(pair) for pair in self.keys.items()], "buffers": kept}

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
        keys = keys_of(records)
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
        return json_rows(pa.table([*(rows.column(key) for key in self.keys), *results], names))
