"""The state of Spark's processors and aggregates as entries of this project's operators."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t
from pyspark.sql.types import StructField, StructType

from impls.adoption.reading import ENTRY_SCHEMA, StateOperator, keyed_state, struct_of
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.aggregates.measures import SUM_DIGITS, Measure, function_and_column
from impls.operators.aggregates.rows import WINDOW, RowCodec, decimal_of
from impls.operators.base import quoted
from impls.processor.encoding import Encoding, Entries, Variable
from impls.processor.handle import TimeMode
from impls.store.naming import EXPIRY, timer_name

Read = Callable[..., DataFrame]
"""Returns the state of a query as Spark's reader gives it under the reader's options."""

Kind = Literal["value", "list", "map"]
_KINDS: dict[str, Kind] = {"ValueState": "value", "ListState": "list", "MapState": "map"}
_DATA: dict[Kind, list[str]] = {"value": ["value"], "list": ["list_value"], "map": ["user_map_key", "user_map_value"]}
_OPTIONS: dict[Kind, dict[str, str]] = {
    "value": {},
    "list": {"flattenCollectionTypes": "false"},
    "map": {"flattenCollectionTypes": "true"},
}
_EXPIRES, _TIMERS = "ttlExpirationMs", "TimerState"
_TIME_MODES: dict[str, TimeMode] = {"notime": "none", "processingtime": "processingtime", "eventtime": "eventtime"}


@dataclass(frozen=True)
class _Part:
    """A part of the state: a variable and its columns, or the timers, which have none."""

    key: t.StructType
    variable: Variable | None = None

    @property
    def expires(self) -> bool:
        """Whether values say when they expire."""
        return self.variable is not None and self.variable.ttl_ms is not None


def variables_of(read: Read, state: StateOperator) -> dict[str, tuple[Variable, DataFrame]]:
    """Returns by name the state variables that Spark's metadata lists, and the state of each.

    Raises UsageError for a kind that is not known.
    """
    variables: dict[str, tuple[Variable, DataFrame]] = {}
    for listed in state.properties.get("stateVariables", []):
        name, kind = str(listed["stateName"]), str(listed["stateVariableType"])
        if kind == _TIMERS:
            continue
        if kind not in _KINDS:
            raise UsageError(f"The state variable {name} is a {kind}, which is not known here.")
        variables[name] = _variable(read, name, _KINDS[kind], expires=bool(listed["ttlEnabled"]))
    return variables


def _variable(read: Read, name: str, kind: Kind, *, expires: bool) -> tuple[Variable, DataFrame]:
    frame = read(stateVarName=name, **_OPTIONS[kind])
    schema = _row_type(frame.schema[_DATA[kind][-1]].dataType)
    if expires:
        schema = _row_type(schema["value"].dataType)
    key_schema = struct_of(frame, _DATA[kind][0]) if kind == "map" else None
    return Variable(name, kind, schema, key_schema, 0 if expires else None), frame  # how long it is, is not in state


def time_mode_of(state: StateOperator) -> TimeMode:
    """Returns what the processor's timers go by."""
    return _TIME_MODES[str(state.properties.get("timeMode", "NoTime")).lower()]


def entries_of_processor(
    read: Read, state: StateOperator, variables: Mapping[str, tuple[Variable, DataFrame]], bins: int
) -> DataFrame:
    """Returns the entries of a processor's variables and timers, see `impls.adoption.reading`.

    Raises UsageError when there is neither.
    """
    parts = [
        keyed_state(frame, _DATA[variable.kind], bins).mapInArrow(
            partial(_encoded, _Part(struct_of(frame, "key"), variable)), ENTRY_SCHEMA
        )
        for variable, frame in variables.values()
    ]
    if time_mode_of(state) != "none":
        parts.append(_timers(read, bins))
    if not parts:
        raise UsageError("The processor has neither state variables nor timers: there is nothing to adopt.")
    return reduce(DataFrame.unionAll, parts)


def _row_type(kind: t.DataType) -> t.StructType:
    """Returns the type of a value, or of a list's items."""
    row = kind.elementType if isinstance(kind, t.ArrayType) else kind
    assert isinstance(row, t.StructType), "Spark's reader gives values as structs"
    return row


def _timers(read: Read, bins: int) -> DataFrame:
    frame = read(readRegisteredTimers="true")
    times = F.collect_list("expiration_timestamp_ms").alias("times")
    keyed = keyed_state(frame.groupBy("key").agg(times), ["times"], bins)
    return keyed.mapInArrow(partial(_encoded, _Part(struct_of(frame, "key"))), ENTRY_SCHEMA)


def _encoded(part: _Part, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the entries of rows of (bin, grouping key, data)."""
    encoding, make = Encoding(part.key), _maker(part)
    for batch in batches:
        bins, keys, *data = (column.to_pylist() for column in batch.columns)
        found = [(b, make(encoding, *row)) for b, *row in zip(bins, keys, *data, strict=True)]
        rows = [(b, name, value) for b, entries in found for name, value in entries]
        columns = zip(*rows, strict=True) if rows else [[], [], []]
        kinds = (pa.int32(), pa.binary(), pa.binary())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["bin", "key", "value"])


def _maker(part: _Part) -> Callable[..., Entries]:
    """Returns the function of (encoding, grouping key, data) that gives the entries of a row."""
    variable = part.variable
    if variable is None:
        return lambda encoding, key, times: encoding.timers(key, times)
    row = _values(variable.schema)

    def split(value: Any) -> tuple[Any, int | None]:
        return (row(value["value"]), value[_EXPIRES]) if part.expires else (row(value), None)

    if variable.kind == "value":
        return lambda encoding, key, value: encoding.value(variable, key, *split(value))
    if variable.kind == "list":

        def items(encoding: Encoding, key: bytes, values: Any) -> Entries:
            expires = [value[_EXPIRES] for value in values] if part.expires else None
            return encoding.items(variable, key, [split(value)[0] for value in values], expires)

        return items
    assert variable.key_schema is not None, "a map has a schema of its keys"
    field = _values(variable.key_schema)
    return lambda encoding, key, name, value: encoding.field(variable, key, field(name), *split(value))


def _values(kind: t.DataType) -> Callable[[Any], Any]:
    """Returns the function that makes of Arrow's Python values those that a user of Spark has: rows are tuples."""
    if isinstance(kind, t.StructType):
        fields = [(field.name, _values(field.dataType)) for field in kind.fields]
        return lambda value: None if value is None else tuple(make(value[name]) for name, make in fields)
    if isinstance(kind, t.ArrayType):
        element = _values(kind.elementType)
        return lambda value: None if value is None else [element(item) for item in value]
    if isinstance(kind, t.MapType):
        key, item = _values(kind.keyType), _values(kind.valueType)
        return lambda value: None if value is None else {key(k): item(v) for k, v in value}
    return lambda value: value


def aggregate_of(
    key: StructType, value: StructType, values: Mapping[str, str], known: Mapping[str, str] = MappingProxyType({})
) -> Aggregate:
    """Returns the operator that goes on with state of a key's and a value's type; `known` are types of columns.

    Raises UsageError when the aggregates are not those that the state was made by.
    """
    kinds = {field.name: field.dataType.simpleString() for field in key.fields}
    found = [(field.name, field.dataType.simpleString()) for field in value.fields]
    return Aggregate(kinds, values, typed_by_state(values, found, known))


def typed_by_state(
    values: Mapping[str, str], columns: Sequence[tuple[str, str]], known: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Returns the types of the columns that aggregates read, as far as state of (buffer, type) tells them.

    A lowest or highest value has its column's type, a sum a wider one. Of short decimals Spark keeps integers, which
    say nothing of it: then the type is to be `known`. Raises UsageError unless the aggregates have these buffers.
    """
    types: dict[str, str] = {}
    left, exact = list(columns), set()
    for function, column in map(function_and_column, values.values()):
        wanted = ["sum", "count"] if function == "avg" else [function]
        if function == "sum" and left and decimal_of(left[0][1]):
            wanted.append("isEmpty")
        buffers, left = left[: len(wanted)], left[len(wanted) :]
        if [name for name, _ in buffers] != wanted:
            raise UsageError(_unlike(values, columns))
        if column and column not in exact:
            types[column] = _input_type(function, buffers[0][1], types.get(column))
            exact |= {column} if function in {"min", "max"} else set()
    types = {column: kind or "bigint" for column, kind in types.items()} | dict(known)  # one that is only counted
    made = [Measure.parse(name, text, types) for name, text in values.items()]
    if left or [(buffer.name, buffer.type) for measure in made for buffer in measure.buffers] != list(columns):
        raise UsageError(_unlike(values, columns))
    return types


def _input_type(function: str, kind: str, known: str | None) -> str:
    """Returns the type of a column from that of the first buffer of an aggregate; "" if that says nothing."""
    if function in {"min", "max"}:
        return kind
    if function == "count" or (function == "avg" and known):
        return known or ""
    decimal = decimal_of(kind)
    return kind if decimal is None else f"decimal({max(1, decimal[0] - SUM_DIGITS)},{decimal[1]})"


def _unlike(values: Mapping[str, str], found: Sequence[tuple[str, str]]) -> str:
    kept, given = ", ".join(map(" ".join, found)), ", ".join(values.values())
    if len(set(map(function_and_column, values.values()))) < len(values):
        return f"Spark keeps equal aggregates once, and two of {given} are equal: name each aggregate once."
    return f"The state keeps {kept}, which is not what {given} keep: name the query's aggregates, in its order."


def window_of(key: StructType) -> str | None:
    """Returns the name of a key's window, None without one."""
    return next((field.name for field in key.fields if field.dataType.simpleString() == WINDOW), None)


def entries_of_aggregate(state: DataFrame, operator: Aggregate, bins: int, *, expire: bool) -> DataFrame:
    """Returns the entries of state, see `impls.adoption.reading`; those of windows that expire have their expiries."""
    value, window = struct_of(state, "value"), window_of(struct_of(state, "key"))
    numbered = StructType([StructField(f"b{n}", field.dataType) for n, field in enumerate(value.fields)])
    end = F.unix_micros(F.col(f"key.{quoted(window)}.end")) if expire and window else F.lit(None).cast("long")
    keyed = keyed_state(state.withColumn("end", end), ["end", "value"], bins)
    rows = keyed.withColumn("value", F.col("value").cast(numbered))
    rows = rows.select("bin", "key", "end", *[F.col(f"value.{name}") for name in numbered.names])
    return rows.mapInArrow(partial(_encoded_group, operator.codec), ENTRY_SCHEMA)


def _encoded_group(codec: RowCodec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        bins, keys, ends, *columns = batch.columns
        values = codec.encode([column.cast(kind) for column, kind in zip(columns, codec.kinds, strict=True)])
        yield _entries(bins, keys, pa.array(values, pa.binary()))
        if len(ends) and ends.null_count == 0:
            notes = [timer_name(end.as_py(), key.as_py(), EXPIRY) for end, key in zip(ends, keys, strict=True)]
            yield _entries(bins, *(pa.array(column, pa.binary()) for column in zip(*notes, strict=True)))


def _entries(bins: pa.Array, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([bins, keys, values], ["bin", "key", "value"])
