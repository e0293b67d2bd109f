"""Keys as users give them to a query that runs: as Python values, and as text."""

import base64
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from impls.errors import UsageError
from impls.processor.keys import KeyCodec
from impls.reading.forms import key_schema, keys_of

_INT64 = 1 << 63


class StoredKey(NamedTuple):
    """A key as its state has it.

    Attributes:
        shown: as rows of state have it.
        raw: its bytes in the names of entries.
        number: the key where it is an integer, whose hash is another one than that of its bytes; else None.
    """

    shown: Any
    raw: bytes
    number: int | None = None


class KeyReader:
    """Reads keys of a form, see `impls.reading.forms`.

    Args:
        form: the form.
        columns: a key is encoded columns, as those of `impls.aggregate` and `impls.transform_with_state` are.
    """

    def __init__(self, form: Mapping[str, Any], *, columns: bool):
        self._kind = str(form["key"])
        self._schema: t.StructType | None = None
        if columns:
            kept = "columns" in form  # of a processor, whose rows are as pyspark has them
            self._schema = t.StructType.fromJson(form["columns"]) if kept else key_schema(form["keys"])
            self._codec = KeyCodec(self._schema)
            keys = None if kept else keys_of(form["keys"])
            self._shown = self._codec.decode if keys is None else lambda raw: keys([raw])[0]

    def of_value(self, key: Any) -> StoredKey:
        """Returns a key of Python values; raises UsageError for one of another type than the query's."""
        if self._schema is None:
            return _column(self._kind, key)
        values = _values(self._schema, key)
        fields = list(zip(self._schema.fields, values, strict=True))
        try:
            raw = self._codec.encode(tuple(_fitting(field.dataType, value, field.name) for field, value in fields))
        except (PySparkException, ValueError, OverflowError) as error:
            raise UsageError(f"The key {key!r} does not fit {_sql(self._schema)}: {error}") from error
        for (field, value), kept in zip(fields, self._codec.decode(raw), strict=True):
            # the codec takes for null what is of another type, and rounds decimals, as Spark does
            if value is not None and (kept is None or (isinstance(value, Decimal) and kept != value)):
                raise _unfit(field.dataType, value, field.name)
        return StoredKey(self._shown(raw), raw)

    def of_text(self, text: str) -> list[StoredKey]:
        """Returns the keys that a text may mean: its words, those of the only column, or JSON.

        Raises UsageError when it can mean none.
        """
        found: dict[bytes, StoredKey] = {}
        failure = None
        for value in self._meanings(text):
            try:
                key = self.of_value(value)
            except UsageError as error:
                failure = failure or error
            else:
                found.setdefault(key.raw, key)
        if not found:
            raise failure or UsageError(f"The key {text} is none of the query's: {self._expected()}.")
        return list(found.values())

    def _meanings(self, text: str) -> Iterator[Any]:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = text
        if self._schema is None:
            kind = {"long": t.LongType(), "string": t.StringType(), "binary": t.BinaryType()}[self._kind]
            for part in (text, parsed):
                yield from _from_json(kind, part)
            yield from (text.encode(),) if self._kind == "binary" else ()
            return
        if len(self._schema) == 1:
            for part in (text, parsed):
                yield from ((one,) for one in _from_json(self._schema.fields[0].dataType, part))
        yield from _from_json(self._schema, parsed)

    def _expected(self) -> str:
        if self._schema is None:
            return f"that is of type {self._kind}"
        return f"that has the columns {_sql(self._schema)}, as JSON"


def _sql(schema: t.StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _column(kind: str, key: Any) -> StoredKey:
    """Returns a key that is one column, not encoded."""
    if kind == "long":
        number = _integer(key)
        if number is None or not -_INT64 <= number < _INT64:
            raise UsageError(f"The query's keys are integers of 64 bits, not {key!r}.")
        return StoredKey(number, number.to_bytes(8, "big", signed=True), number)
    if kind == "string":
        if not isinstance(key, str):
            raise UsageError(f"The query's keys are strings, not {key!r}.")
        try:
            return StoredKey(key, key.encode())
        except UnicodeEncodeError as error:
            raise UsageError(f"The key {key!r} is no text: {error}.") from error
    if not isinstance(key, bytes | bytearray | memoryview):
        raise UsageError(f"The query's keys are bytes, not {key!r}.")
    return StoredKey(bytes(key), bytes(key))


def _integer(value: Any) -> int | None:
    """Returns an integer, numpy's too; None for anything else, and for a truth value."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _values(schema: t.StructType, key: Any) -> Sequence[Any]:
    """Returns the values of a key's columns; raises UsageError for other ones than the key has."""
    if isinstance(key, dict):
        if set(key) != set(schema.names):
            raise UsageError(f"The query's key has the columns {_sql(schema)}, not {', '.join(map(str, key))}.")
        return [key[name] for name in schema.names]
    if isinstance(key, tuple | list) and not (len(schema) == 1 and _takes_list(schema.fields[0].dataType, key)):
        if len(key) != len(schema):
            raise UsageError(f"The query's key has the columns {_sql(schema)}, not {len(key)} of them.")
        return key
    if len(schema) == 1:
        return [key]
    raise UsageError(f"The query's key has the columns {_sql(schema)}: give a tuple of them, not {key!r}.")


def _takes_list(kind: t.DataType, key: Any) -> bool:
    """Returns whether what is given for the only column of a key is its value, and no tuple with that."""
    if isinstance(kind, t.ArrayType):
        return not (isinstance(key, tuple) and len(key) == 1 and isinstance(key[0], list | tuple))
    return isinstance(kind, t.StructType) and not (len(key) == 1 and isinstance(key[0], tuple | list | dict))


_TYPES: list[tuple[type[t.DataType] | tuple[type[t.DataType], ...], tuple[type, ...]]] = [
    (t.BooleanType, (bool,)),
    ((t.StringType, t.CharType, t.VarcharType), (str,)),
    (t.BinaryType, (bytes, bytearray)),
    (t.DecimalType, (Decimal,)),
    ((t.TimestampType, t.TimestampNTZType), (datetime,)),
    (t.DateType, (date,)),
    (t.DayTimeIntervalType, (timedelta,)),
]


def _fitting(kind: t.DataType, value: Any, name: str) -> Any:
    """Returns a value as the codec takes it; raises UsageError where it is of another type than a column's.

    The codec would take one of another type for null, as Spark does with a row of a user's.
    """
    if value is None or isinstance(kind, t.UserDefinedType):
        return value
    if isinstance(kind, t.IntegralType) and (number := _integer(value)) is not None:
        return _in_range(kind, number, name)
    if isinstance(kind, t.FloatType | t.DoubleType) and (isinstance(value, float) or _integer(value) is not None):
        return _float(kind, value, name)
    if isinstance(kind, t.ArrayType) and isinstance(value, list | tuple):
        return [_fitting(kind.elementType, part, name) for part in value]
    if isinstance(kind, t.StructType) and isinstance(value, dict | list | tuple) and len(value) == len(kind):
        parts = [value.get(part) for part in kind.names] if isinstance(value, dict) else value
        fields = zip(kind.fields, parts, strict=True)
        return tuple(_fitting(field.dataType, part, f"{name}.{field.name}") for field, part in fields)
    fits = next((types for kinds, types in _TYPES if isinstance(kind, kinds)), ())
    if not isinstance(value, fits) or (isinstance(kind, t.DateType) and isinstance(value, datetime)):
        raise UsageError(f"The key's column {name} is of type {kind.simpleString()}, not {value!r}.")
    return bytes(value) if isinstance(value, bytearray) else value


_BITS: dict[type[t.DataType], int] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32}


def _in_range(kind: t.DataType, number: int, name: str) -> int:
    half = 1 << _BITS.get(type(kind), 64) - 1
    if not -half <= number < half:
        raise _unfit(kind, number, name)
    return number


def _float(kind: t.DataType, value: Any, name: str) -> float:
    """Returns a number as a key's float; raises UsageError for an integer that no float is, so that none is another."""
    number = _integer(value)
    near = float(value if number is None else np.float32(number) if isinstance(kind, t.FloatType) else number)
    if number is not None and near != number:
        raise _unfit(kind, number, name)
    return near


def _unfit(kind: t.DataType, value: Any, name: str) -> UsageError:
    return UsageError(f"The key's column {name} is of type {kind.simpleString()}: {value} does not fit.")


def _from_json(kind: t.DataType, value: Any) -> Iterator[Any]:
    """Yields what a JSON value, or a text, may mean as a value of a type; see `impls.reading.texts.json_text`."""
    try:
        yield _of_json(kind, value)
    except (ValueError, TypeError, ArithmeticError, KeyError):
        return


def _of_json(kind: t.DataType, value: Any) -> Any:
    """Returns a value of a type; raises ValueError, TypeError, ArithmeticError or KeyError for no such value."""
    if value is None:
        return None
    if isinstance(kind, t.StructType):
        parts = [value[name] for name in kind.names] if isinstance(value, dict) else list(value)
        return tuple(_of_json(field.dataType, part) for field, part in zip(kind.fields, parts, strict=True))
    if isinstance(kind, t.ArrayType):
        return [_of_json(kind.elementType, part) for part in value]
    for kinds, parse in _PARSERS:
        if isinstance(kind, kinds):
            return parse(value)
    raise ValueError(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_PARSERS: list[tuple[type[t.DataType] | tuple[type[t.DataType], ...], Callable[[Any], Any]]] = [
    (t.BooleanType, lambda value: {"true": True, "false": False}[str(value).lower()]),
    (t.IntegralType, lambda value: int(value) if isinstance(value, str) else value),
    (t.DecimalType, lambda value: Decimal(str(value))),
    ((t.FloatType, t.DoubleType), float),
    (t.BinaryType, lambda value: base64.b64decode(value, validate=True)),
    ((t.TimestampType, t.TimestampNTZType), datetime.fromisoformat),
    (t.DateType, date.fromisoformat),
    ((t.StringType, t.CharType, t.VarcharType), _text),
]
