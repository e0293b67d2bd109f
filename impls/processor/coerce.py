"""What Spark's JVM makes of a Python value for a column of a type, so that state holds what Spark's own would hold.

A value is first taken to pyspark's internal form (`DataType.toInternal`: timestamps are µs, dates days). Then, as
`EvaluatePython.makeFromJava` does, one of an unexpected type becomes null, a number is cut to the type's width, and
anything becomes a string where a string is wanted.
"""

import ctypes
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types as t

from impls.errors import UsageError

_WIDTHS: dict[type[t.DataType], Callable[[int], Any]] = {
    t.ByteType: ctypes.c_int8,
    t.ShortType: ctypes.c_int16,
    t.IntegerType: ctypes.c_int32,
    t.LongType: ctypes.c_int64,
    t.DateType: ctypes.c_int32,
    t.TimestampType: ctypes.c_int64,
    t.TimestampNTZType: ctypes.c_int64,
    t.DayTimeIntervalType: ctypes.c_int64,
}
_LONG = 1 << 63
_DIGITS = 38
_Coerce = Callable[[Any], Any]


def coercion(kind: t.DataType, where: str) -> _Coerce:  # noqa: PLR0911 - a return for each type
    """Returns the function that makes of a value in internal form what Spark's JVM makes of it.

    Raises:
        UsageError: values of the type cannot be kept; `where` says whose type it is.
    """
    if isinstance(kind, t.UserDefinedType):
        return coercion(kind.sqlType(), where)
    for known, make in _WIDTHS.items():
        if type(kind) is known:
            return _integer(make)
    if isinstance(kind, t.ArrayType):
        return _array(coercion(kind.elementType, where))
    if isinstance(kind, t.MapType):
        return _map(coercion(kind.keyType, where), coercion(kind.valueType, where))
    if isinstance(kind, t.StructType):
        return _struct([coercion(field.dataType, where) for field in kind.fields])
    if isinstance(kind, t.DecimalType):
        return _decimal(kind.precision, kind.scale)
    for family, function in _PLAIN.items():
        if isinstance(kind, family):
            return function
    raise UsageError(f"{where} has the type {kind.simpleString()}, which cannot be kept as state.")


def internal_row(schema: t.StructType, data: Any) -> Any:
    """Returns a row in pyspark's internal form, a tuple; raises what `StructType.toInternal` raises."""
    return schema.toInternal(data) if any(schema._needConversion) else data


def _integer(make: Callable[[int], Any]) -> _Coerce:
    bits = ctypes.sizeof(make) * 8  # type: ignore[arg-type]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def of(value: Any) -> int | None:
        if type(value) is int and low <= value <= high:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and -_LONG <= value < _LONG:
            return int(make(value).value)
        return None

    return of


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _double(value: Any) -> float | None:
    return value if isinstance(value, float) else None


def _float(value: Any) -> float | None:
    if not isinstance(value, float):
        return None
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_HALVES = re.compile("[\ud800-\udfff]")


def _string(value: Any) -> str | None:
    if isinstance(value, str):  # half a surrogate pair becomes what Java makes of it
        return value if value.isascii() else _HALVES.sub("\ufffd", value)
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _binary(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _null(_value: Any) -> None:
    return None


_PLAIN: dict[type[t.DataType], _Coerce] = {
    t.BooleanType: _boolean,
    t.DoubleType: _double,
    t.FloatType: _float,
    t.StringType: _string,
    t.CharType: _string,
    t.VarcharType: _string,
    t.BinaryType: _binary,
    t.NullType: _null,
}


def _decimal(precision: int, scale: int) -> _Coerce:
    context, step = Context(prec=2 * _DIGITS, rounding=ROUND_HALF_UP), Decimal(1).scaleb(-scale)

    def of(value: Any) -> Decimal | None:
        if not isinstance(value, Decimal):
            return None
        try:
            rounded = value.quantize(step, context=context)
        except InvalidOperation:
            rounded = None
        if rounded is None or len(rounded.as_tuple().digits) > precision:
            raise PySparkRuntimeError(f"The decimal {value} does not fit decimal({precision},{scale}).")
        return rounded

    return of


def _array(element: _Coerce) -> _Coerce:
    return lambda value: [element(item) for item in value] if isinstance(value, list | tuple) else None


def _map(key: _Coerce, value: _Coerce) -> _Coerce:
    return lambda found: {key(k): value(v) for k, v in found.items()} if isinstance(found, dict) else None


def _struct(fields: list[_Coerce]) -> _Coerce:
    needed = len(fields)

    def of(value: Any) -> tuple[Any, ...] | None:
        if not isinstance(value, tuple | list):
            return None
        if len(value) != needed:
            raise PySparkRuntimeError(
                "Input row doesn't have expected number of values required by the schema. "
                f"{needed} fields are required while {len(value)} values are provided."
            )
        return tuple([field(item) for field, item in zip(fields, value, strict=True)])

    return of
