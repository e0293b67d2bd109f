"""The state of a processor, as Spark keeps it, as entries of this project's runtime of processors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from impls.adoption.reading import ENTRY_SCHEMA, StateOperator, keyed_state, struct_of
from impls.errors import UsageError
from impls.processor.encoding import Encoding, Entries, Variable
from impls.processor.handle import TimeMode

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
    found: dict[str, tuple[Variable, DataFrame]] = {}
    for listed in state.properties.get("stateVariables", []):
        name, kind = str(listed["stateName"]), str(listed["stateVariableType"])
        if kind == _TIMERS:
            continue
        if kind not in _KINDS:
            raise UsageError(f"The state variable {name} is a {kind}, which is not known here.")
        found[name] = _variable(read, name, _KINDS[kind], expires=bool(listed["ttlEnabled"]))
    return found


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
