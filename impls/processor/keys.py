"""Keys as bytes: of a grouping key, and of a key of a map state. Equal keys are equal bytes, which name bin and entry.

The bytes of a key are those of its fields, one behind the other. A field is 00 for null, else 01 and

| type | bytes |
|---|---|
| boolean | 1 byte, 00 or 01 |
| byte, short, int, long, date (days), timestamp, timestamp_ntz, day-time interval (µs) | 8 bytes, big-endian |
| float, double | 8 bytes of the double, big-endian; one NaN, no -0.0 |
| string, binary | 4 bytes of length, the bytes; without the length as the key's last field |
| decimal | its digits at the type's scale, as a string without an exponent |
| array | 4 bytes of length, its elements as fields |
| struct | its fields |

`key_sql` computes the same in Spark, where records are routed before any Python sees them.
"""

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import types as t

from impls.errors import UsageError
from impls.operators.base import quoted
from impls.processor.coerce import coercion, internal_row
from impls.processor.rows import normalized, row_maker
from impls.spark.columnnames import check_collation

_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.DateType, t.TimestampType, t.TimestampNTZType,
             t.DayTimeIntervalType)  # fmt: skip
_TEXTS = (t.StringType, t.CharType, t.VarcharType)
_EIGHT, _DOUBLE, _LENGTH = struct.Struct(">q"), struct.Struct(">d"), struct.Struct(">I")
_NAN = b"\x7f\xf8" + bytes(6)
_Pack = Callable[[Any], bytes]
_Read = Callable[[bytes, int], tuple[Any, int]]
_MAPS_IN_KEYS = "cannot be part of a key: equal maps have many forms"


class KeyCodec:
    """Keys of one schema to bytes and back.

    Args:
        schema: of the keys.
        where: whose keys they are, for errors.

    Raises:
        UsageError: one of its types cannot be part of a key.
    """

    def __init__(self, schema: t.StructType, where: str = "The key"):
        self.schema, kinds = schema, [field.dataType for field in schema.fields]
        last = len(kinds) - 1
        self._pack = _nullable_fields([_packer(kind, where, open_=i == last) for i, kind in enumerate(kinds)])
        self._read = [_reader(kind, open_=i == last) for i, kind in enumerate(kinds)]
        self._coerce = coercion(schema, where)
        self._make, self._converts = row_maker(schema.names), any(schema._needConversion)

    def encode(self, data: Any) -> bytes:
        """Returns a key, a row of values as a user gives them, as bytes; raises what `StateRowCodec.encode` raises."""
        return self._pack(self._coerce(internal_row(self.schema, normalized(data))))

    def decode(self, raw: bytes) -> t.Row:
        """Returns a key as a Row, its values as pyspark gives them."""
        values, at = [], 0
        for read in self._read:
            value, at = _nullable_read(read, raw, at)
            values.append(value)
        return self.schema.fromInternal(tuple(values)) if self._converts else self._make(values)


def key_sql(schema: t.StructType, columns: list[str]) -> str:
    """Returns a key's bytes as a Spark SQL expression of type binary; `columns` are expressions of its fields.

    Raises:
        UsageError: one of its types cannot be part of a key.
    """
    KeyCodec(schema)
    last, names = len(columns) - 1, itertools.count()
    parts = [
        _field_sql(field.dataType, column, names, open_=i == last)
        for i, (field, column) in enumerate(zip(schema.fields, columns, strict=True))
    ]
    return f"concat({', '.join(parts)})"


def columns_sql(schema: t.StructType, names: Sequence[str]) -> str:
    """Returns the same of a key that is in columns of these names."""
    return key_sql(schema, [quoted(name) for name in names])


# -- Python -----------------------------------------------------------------------------------------------------------


def _packer(kind: t.DataType, where: str, *, open_: bool = False) -> _Pack:  # noqa: PLR0911 - a return for each type
    if isinstance(kind, t.UserDefinedType):
        return _packer(kind.sqlType(), where, open_=open_)
    if isinstance(kind, t.BooleanType):
        return lambda value: b"\1" if value else b"\0"
    if isinstance(kind, _INTEGERS):
        return _EIGHT.pack
    if isinstance(kind, t.FloatType | t.DoubleType):
        return lambda value: _NAN if math.isnan(value) else _DOUBLE.pack(value + 0.0)
    if isinstance(kind, t.DecimalType):
        return lambda value: _with_length(format(value, "f").encode(), open_=open_)
    if isinstance(kind, _TEXTS):
        check_collation(kind, where)
        return lambda value: _with_length(value.encode(), open_=open_)
    if isinstance(kind, t.BinaryType):
        return lambda value: _with_length(value, open_=open_)
    if isinstance(kind, t.ArrayType):
        element = _nullable(_packer(kind.elementType, where))
        return lambda value: _LENGTH.pack(len(value)) + b"".join([element(item) for item in value])
    if isinstance(kind, t.StructType):
        return _nullable_fields([_packer(field.dataType, where) for field in kind.fields])
    reason = _MAPS_IN_KEYS if isinstance(kind, t.MapType) else "cannot be part of a key"
    raise UsageError(f"{where} has the type {kind.simpleString()}, which {reason}.")


def _with_length(raw: bytes, *, open_: bool) -> bytes:
    return raw if open_ else _LENGTH.pack(len(raw)) + raw


def _nullable(pack: _Pack) -> _Pack:
    return lambda value: b"\0" if value is None else b"\1" + pack(value)


def _nullable_fields(packers: list[_Pack]) -> _Pack:
    fields = [_nullable(pack) for pack in packers]
    return lambda values: b"".join([pack(value) for pack, value in zip(fields, values, strict=True)])


def _reader(kind: t.DataType, *, open_: bool = False) -> _Read:  # noqa: PLR0911 - a return for each type
    if isinstance(kind, t.UserDefinedType):
        return _reader(kind.sqlType(), open_=open_)
    if isinstance(kind, t.BooleanType):
        return lambda raw, at: (raw[at] == 1, at + 1)
    if isinstance(kind, _INTEGERS):
        return lambda raw, at: (_EIGHT.unpack_from(raw, at)[0], at + 8)
    if isinstance(kind, t.FloatType | t.DoubleType):
        return lambda raw, at: (_DOUBLE.unpack_from(raw, at)[0], at + 8)
    if isinstance(kind, t.DecimalType):
        return _bytes_reader(lambda raw: Decimal(raw.decode()), open_=open_)
    if isinstance(kind, _TEXTS):
        return _bytes_reader(bytes.decode, open_=open_)
    if isinstance(kind, t.BinaryType):
        return _bytes_reader(bytes, open_=open_)
    if isinstance(kind, t.ArrayType):
        return _array_reader(_reader(kind.elementType))
    assert isinstance(kind, t.StructType), "the packer has refused the other types"
    return _struct_reader(kind)


def _bytes_reader(make: Callable[[bytes], Any], *, open_: bool) -> _Read:
    def read(raw: bytes, at: int) -> tuple[Any, int]:
        begin = at if open_ else at + 4
        end = len(raw) if open_ else begin + _LENGTH.unpack_from(raw, at)[0]
        return make(raw[begin:end]), end

    return read


def _nullable_read(read: _Read, raw: bytes, at: int) -> tuple[Any, int]:
    return read(raw, at + 1) if raw[at] else (None, at + 1)


def _array_reader(element: _Read) -> _Read:
    def read(raw: bytes, at: int) -> tuple[Any, int]:
        values, (number,) = [], _LENGTH.unpack_from(raw, at)
        at += 4
        for _ in range(number):
            value, at = _nullable_read(element, raw, at)
            values.append(value)
        return values, at

    return read


def _struct_reader(kind: t.StructType) -> _Read:
    fields, make = [_reader(field.dataType) for field in kind.fields], row_maker(kind.names)
    converts = any(kind._needConversion)

    def read(raw: bytes, at: int) -> tuple[Any, int]:
        values = []
        for field in fields:
            value, at = _nullable_read(field, raw, at)
            values.append(value)
        return kind.fromInternal(tuple(values)) if converts else make(values), at

    return read


# -- Spark SQL --------------------------------------------------------------------------------------------------------


def _field_sql(kind: t.DataType, value: str, names: "itertools.count[int]", *, open_: bool = False) -> str:
    return f"if(isnull({value}), X'00', concat(X'01', {_packed_sql(kind, value, names, open_=open_)}))"


def _packed_sql(kind: t.DataType, value: str, names: "itertools.count[int]", *, open_: bool) -> str:
    if isinstance(kind, t.UserDefinedType):
        raise UsageError(f"A key of the type {kind.simpleString()} cannot be used: give it as a struct.")
    if isinstance(kind, t.BooleanType):
        return f"if({value}, X'01', X'00')"
    if isinstance(kind, _INTEGERS):
        return _eight_sql(_long_sql(kind, value))
    if isinstance(kind, t.FloatType | t.DoubleType):
        bits = f"reflect('java.lang.Double', 'doubleToLongBits', cast({value} as double) + 0.0D)"
        return _eight_sql(f"cast({bits} as bigint)")
    if isinstance(kind, t.StructType):
        parts = [_field_sql(field.dataType, f"{value}.{quoted(field.name)}", names) for field in kind.fields]
        return f"concat({', '.join(parts)})"
    if isinstance(kind, t.ArrayType):
        name = f"e{next(names)}"
        element = _field_sql(kind.elementType, name, names)
        elements = f"aggregate({value}, X'', (all_{name}, {name}) -> concat(all_{name}, {element}))"
        return f"concat({_length_sql(f'size({value})')}, {elements})"
    text = _decimal_sql(kind, value) if isinstance(kind, t.DecimalType) else f"cast({value} as string)"
    raw = value if isinstance(kind, t.BinaryType) else f"cast({text} as binary)"
    return raw if open_ else f"concat({_length_sql(f'length({raw})')}, {raw})"


_PLAIN_SCALE = 6  # a decimal with more digits behind its point may be written with an exponent


def _decimal_sql(kind: t.DecimalType, value: str) -> str:
    """Returns a decimal's digits as SQL, the same whether `spark.sql.ansi.enabled` is set.

    Spark's cast to string writes 0E-10 and -1.5E-7 where it is not set, and all digits where it is.
    """
    text = f"cast({value} as string)"
    if kind.scale <= _PLAIN_SCALE:
        return text
    digits = f"translate(split_part({text}, 'E', 1), '-.', '')"
    plain = f"concat(if({value} < 0, '-', ''), '0.', lpad({digits}, {kind.scale}, '0'))"
    return f"if(instr({text}, 'E') > 0, {plain}, {text})"


def _long_sql(kind: t.DataType, value: str) -> str:
    """Returns the number of a value as SQL."""
    if isinstance(kind, t.DateType):
        return f"cast(unix_date({value}) as bigint)"
    if isinstance(kind, t.TimestampType):
        return f"unix_micros({value})"
    if isinstance(kind, t.TimestampNTZType | t.DayTimeIntervalType):
        span = value if isinstance(kind, t.DayTimeIntervalType) else f"({value} - TIMESTAMP_NTZ '1970-01-01 00:00:00')"
        days, hours, minutes, seconds = (f"extract({unit} FROM {span})" for unit in ("DAY", "HOUR", "MINUTE", "SECOND"))
        whole = f"((cast({days} as bigint) * 24 + {hours}) * 60 + {minutes}) * 60000000L"
        return f"{whole} + cast({seconds} * 1000000 as bigint)"
    return f"cast({value} as bigint)"


def _eight_sql(number: str) -> str:
    return f"unhex(lpad(hex({number}), 16, '0'))"


def _length_sql(number: str) -> str:
    return f"unhex(lpad(hex(cast({number} as bigint)), 8, '0'))"
