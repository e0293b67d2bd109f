"""Rows of state as bytes: a JSON array with one value per field of the row's schema.

| type | value |
|---|---|
| byte, short, int, long | number |
| boolean, string | as in JSON |
| float, double | number; "NaN", "Infinity" and "-Infinity" as strings |
| date | days since 1970-01-01 |
| timestamp, timestamp_ntz, day-time interval | µs, since 1970-01-01 (UTC, or without a time zone), or of the interval |
| decimal | string with all digits of its scale |
| binary | string in base64 |
| array | array |
| struct | array of its fields |
| map | array of [key, value] |

A null is null. The encoding needs the schema to be read, and says nothing about it.
"""

import base64
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import orjson
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.sql import types as t
from pyspark.sql.streaming import stateful_processor_api_client as spark

from impls.operators.rowjson import each, nullable, number
from impls.processor.coerce import coercion, internal_row

_One = Callable[[Any], Any]
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SAME = (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.BooleanType, t.StringType, t.CharType, t.VarcharType,
         t.NullType, t.DateType, t.TimestampType, t.TimestampNTZType, t.DayTimeIntervalType)  # fmt: skip
_FAST = {bool, int, str, float, bytes, type(None)}


def normalized(data: Any) -> tuple[Any, ...]:
    """Returns a row that a user gives as Spark takes it: NumPy's and pandas' values as Python's own.

    Raises TypeError, as Spark's client does, for what is no row.
    """
    if type(data) is tuple and _FAST.issuperset(map(type, data)):
        return data
    if spark.has_numpy is None:
        spark._load_numpy()
    return tuple(map(spark._normalize_state_value, data))


def row_maker(names: Sequence[str]) -> Callable[[Any], t.Row]:
    """Returns the function that makes a pyspark Row of values, without the checks of its constructor."""
    fields, new = t.Row(*names), tuple.__new__

    def make(values: Any) -> t.Row:
        row = new(t.Row, values)
        row.__fields__ = fields
        return row

    return make


def plain(kind: Any) -> Any:
    """Returns a type whose values are those that Spark has inside: numbers for times, what a user's type is made of.

    No time zone can turn such a time.
    """
    if isinstance(kind, t.UserDefinedType):
        return plain(kind.sqlType())
    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(field.name, plain(field.dataType)) for field in kind.fields])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(plain(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(plain(kind.keyType), plain(kind.valueType))
    return t.LongType() if kind.needConversion() else kind


class StateRowCodec:
    """Rows of one schema to bytes and back; what a row becomes in between is what it becomes in Spark's state.

    Args:
        schema: of the rows.
        where: whose rows they are, for errors.

    Raises:
        UsageError: values of one of its types cannot be kept.
    """

    def __init__(self, schema: t.StructType, where: str = "A row"):
        self.schema, self._width, self._where = schema, len(schema), where
        self._coerce = [coercion(field.dataType, where) for field in schema.fields]
        out = [_to_json(field.dataType) for field in schema.fields]
        back = [_from_json(field.dataType) for field in schema.fields]
        self._out = [(i, f) for i, f in enumerate(out) if f is not None]
        self._back = [(i, f) for i, f in enumerate(back) if f is not None]
        self._converts = any(schema._needConversion)
        self._row = row_maker(schema.names)

    def encode(self, data: Any) -> bytes:
        """Returns a row as bytes.

        Raises:
            PySparkTypeError, PySparkValueError: it is no row, as Spark's client says.
            PySparkRuntimeError: it has another number of values than the schema.
        """
        try:
            values = normalized(data)
        except TypeError as error:
            raise PySparkTypeError(f"{self._where} takes a row as a tuple, not {data!r}: {error}.") from error
        if self._converts:
            values = internal_row(self.schema, values)
        if len(values) != self._width:
            raise PySparkRuntimeError(
                f"{self._where}: Input row doesn't have expected number of values required by the schema. "
                f"{self._width} fields are required while {len(values)} values are provided."
            )
        row = [coerce(value) for coerce, value in zip(self._coerce, values, strict=True)]
        for i, function in self._out:
            if row[i] is not None:
                row[i] = function(row[i])
        return orjson.dumps(row)

    def decode(self, raw: bytes) -> tuple[Any, ...]:
        """Returns a row as a tuple, its values as pyspark gives them."""
        row = orjson.loads(raw)
        for i, function in self._back:
            if row[i] is not None:
                row[i] = function(row[i])
        return tuple(self.schema.fromInternal(tuple(row))) if self._converts else tuple(row)

    def decode_row(self, raw: bytes) -> t.Row:
        """Returns a row with the names of its fields."""
        return self._row(self.decode(raw))


def _to_json(kind: t.DataType) -> _One | None:  # noqa: PLR0911 - a return for each type
    """Returns what makes a JSON value of one that is not null, None where it is one."""
    if isinstance(kind, t.UserDefinedType):
        return _to_json(kind.sqlType())
    if isinstance(kind, _SAME):
        return None
    if isinstance(kind, t.FloatType | t.DoubleType):
        return number
    if isinstance(kind, t.DecimalType):
        return lambda value: format(value, "f")
    if isinstance(kind, t.BinaryType):
        return lambda value: base64.b64encode(value).decode()
    if isinstance(kind, t.ArrayType):
        return each(nullable(_to_json(kind.elementType)))
    if isinstance(kind, t.MapType):
        key, item = nullable(_to_json(kind.keyType)), nullable(_to_json(kind.valueType))
        return lambda value: [[key(k), item(v)] for k, v in value.items()]
    assert isinstance(kind, t.StructType), "coercion has refused the other types"
    fields = [nullable(_to_json(field.dataType)) for field in kind.fields]
    return lambda value: [f(v) for f, v in zip(fields, value, strict=True)]


def _from_json(kind: t.DataType) -> _One | None:  # noqa: PLR0911 - a return for each type
    """Returns what makes an internal value of a JSON value that is not null, None where it is one."""
    if isinstance(kind, t.UserDefinedType):
        return _from_json(kind.sqlType())
    if isinstance(kind, _SAME):
        return None
    if isinstance(kind, t.FloatType | t.DoubleType):
        return lambda value: _SPECIAL[value] if isinstance(value, str) else float(value)
    if isinstance(kind, t.DecimalType):
        return Decimal
    if isinstance(kind, t.BinaryType):
        return base64.b64decode
    if isinstance(kind, t.ArrayType):
        return each(nullable(_from_json(kind.elementType)))
    if isinstance(kind, t.MapType):
        key, item = nullable(_from_json(kind.keyType)), nullable(_from_json(kind.valueType))
        return lambda value: {key(k): item(v) for k, v in value}
    assert isinstance(kind, t.StructType), "coercion has refused the other types"
    fields, make = [nullable(_from_json(field.dataType)) for field in kind.fields], row_maker(kind.names)
    whole = kind if any(kind._needConversion) else None

    def row(value: Any) -> Any:
        values = [f(v) for f, v in zip(fields, value, strict=True)]
        return make(values) if whole is None else whole.fromInternal(tuple(values))

    return row
