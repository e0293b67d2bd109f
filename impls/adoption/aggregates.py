"""The state of Spark's aggregates as entries of an `Aggregate`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from impls.adoption.reading import ENTRY_SCHEMA, keyed_state, struct_of
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.aggregates.measures import Measure, function_and_column
from impls.operators.aggregates.rows import WINDOW, RowCodec, decimal_of
from impls.operators.aggregates.windows import expiry_name

_EMPTY = "isEmpty"  # Spark's second buffer of a sum of decimals
_SUM_DIGITS = 10  # by which a sum of decimals is longer than they are


def aggregate_of(key: StructType, value: StructType, values: Mapping[str, str]) -> Aggregate:
    """Returns the operator that goes on with state of a key's and a value's type.

    Raises UsageError when the aggregates are not those that the state was made by.
    """
    kinds = {field.name: field.dataType.simpleString() for field in key.fields}
    found = [(field.name, field.dataType.simpleString()) for field in value.fields if field.name != _EMPTY]
    return Aggregate(kinds, values, typed_by_state(values, found))


def typed_by_state(values: Mapping[str, str], found: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns the types of the columns that aggregates read, as far as state of (buffer, type) tells them.

    A lowest or highest value has its column's type, a sum a wider one. Raises UsageError unless the aggregates have
    these buffers.
    """
    types: dict[str, str] = {}
    left, exact = list(found), set()
    for function, column in map(function_and_column, values.values()):
        own = [left.pop(0) for _ in range(min(len(left), 2 if function == "avg" else 1))]
        names = [name for name, _ in own]
        if names != (["sum", "count"] if function == "avg" else [function]):
            raise UsageError(_unlike(values, found))
        if column and column not in exact:
            types[column] = _input_type(function, own[0][1], types.get(column))
            exact |= {column} if function in {"min", "max"} else set()
    types = {column: kind or "bigint" for column, kind in types.items()}  # that of one only counted is in no state
    made = [Measure.parse(name, text, types) for name, text in values.items()]
    if left or [(buffer.name, buffer.type) for measure in made for buffer in measure.buffers] != list(found):
        raise UsageError(_unlike(values, found))
    return types


def _input_type(function: str, kind: str, known: str | None) -> str:
    """Returns the type of a column from that of the first buffer of an aggregate; "" if that says nothing."""
    if function in {"min", "max"}:
        return kind
    if function == "count" or (function == "avg" and known):
        return known or ""
    decimal = decimal_of(kind)
    return kind if decimal is None else f"decimal({max(1, decimal[0] - _SUM_DIGITS)},{decimal[1]})"


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
    kept = [n for n, field in enumerate(value.fields) if field.name != _EMPTY]
    numbered = StructType([StructField(f"b{n}", field.dataType) for n, field in enumerate(value.fields)])
    end = F.unix_micros(F.col(f"key.`{window}`.end")) if expire else F.lit(None).cast("long")
    keyed = keyed_state(state.withColumn("end", end), ["end", "value"], bins)
    rows = keyed.withColumn("value", F.col("value").cast(numbered))
    rows = rows.select("bin", "key", "end", *[F.col(f"value.b{n}") for n in kept])
    return rows.mapInArrow(partial(_encoded, operator.codec), ENTRY_SCHEMA)


def _encoded(codec: RowCodec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        bins, keys, ends, *columns = batch.columns
        values = codec.encode([column.cast(kind) for column, kind in zip(columns, codec.kinds, strict=True)])
        yield _entries(bins, keys, pa.array(values, pa.binary()))
        if len(ends) and ends.null_count == 0:
            names = [expiry_name(end, key) for end, key in zip(ends.to_pylist(), keys.to_pylist(), strict=True)]
            yield _entries(bins, pa.array(names, pa.binary()), pa.array([b""] * len(names), pa.binary()))


def _entries(bins: pa.Array, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([bins, keys, values], ["bin", "key", "value"])
