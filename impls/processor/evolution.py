"""State variables whose schema has changed: earlier rows are read under the schema that the processor asks for now.

A row written under the first schema of a variable is a JSON array, see `impls.processor.rows`. A row written under a
later schema has one byte before it: the number of that schema in the variable's history. So a change rewrites no row,
and rows of several schemas move together. Spark's `stateStore.encodingFormat=avro` allows the same changes: fields are
added (null in earlier rows), removed, reordered and widened.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from impls.processor.coerce import coercion
from impls.processor.rows import RowCodec, each, nullable, row_maker

__all__ = ["LAST", "EvolvedRows", "History", "converter"]

_One = Callable[[Any], Any]
LAST = ord("[") - 1  # a row of the first schema begins with [
_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)


@dataclass(frozen=True)
class History:
    """The schemas that a state variable has had.

    Attributes:
        schemas: of its rows, the first one first.
        current: place of the schema under which rows are written and given to the processor.
    """

    schemas: tuple[t.StructType, ...]
    current: int


class EvolvedRows(RowCodec):
    """Rows of a variable with a history to bytes and back.

    Args:
        history: of the variable; every schema of it can be read under the current one, see `converter`.
        where: whose rows they are, for errors.
    """

    def __init__(self, history: History, where: str = "A row"):
        super().__init__(history.schemas[history.current], where)
        self._history = history
        self._front = bytes([history.current]) if history.current else b""
        self._earlier: dict[int, tuple[RowCodec, _One | None]] = {}

    def encode(self, data: Any) -> bytes:
        """Returns a row as bytes; raises what `RowCodec.encode` raises."""
        return self._front + super().encode(data)

    def decode(self, raw: bytes) -> tuple[Any, ...]:
        """Returns a row, written under any schema of the history, as a tuple of the current one."""
        number, row = (raw[0], raw[1:]) if raw[0] <= LAST else (0, raw)
        if number == self._history.current:
            return super().decode(row)
        codec, convert = self._earlier.get(number) or self._reader(number)
        values = codec.decode(row)
        return values if convert is None else tuple(convert(values))

    def _reader(self, number: int) -> tuple[RowCodec, _One | None]:
        written = self._history.schemas[number]
        self._earlier[number] = RowCodec(written, self._where), converter(written, self.schema)
        return self._earlier[number]


def converter(written: t.DataType, wanted: t.DataType, field: str = "") -> _One | None:
    """Returns what makes a value of a wider type of one that was written, None where nothing has to be done.

    Raises:
        TypeError: the type is not as wide as that which was written; the message names the field.
    """
    if written.simpleString() == wanted.simpleString():
        return None
    if isinstance(written, t.StructType) and isinstance(wanted, t.StructType):
        return _fields(written, wanted, field)
    if isinstance(written, t.ArrayType) and isinstance(wanted, t.ArrayType):
        return each(nullable(converter(written.elementType, wanted.elementType, f"{field}[]")))
    if isinstance(written, t.MapType) and isinstance(wanted, t.MapType) and written.keyType == wanted.keyType:
        item = nullable(converter(written.valueType, wanted.valueType, f"{field}[]"))
        return lambda values: {key: item(value) for key, value in values.items()}
    return _widened(written, wanted, field)


def _fields(written: t.StructType, wanted: t.StructType, field: str) -> _One:
    """Returns what makes a row of a row, by the names of its fields; null where there was no such field."""
    places, row = {name: place for place, name in enumerate(written.names)}, row_maker(wanted.names)
    taken: list[tuple[int | None, _One]] = []
    for one in wanted.fields:
        path, place = f"{field}.{one.name}" if field else one.name, places.get(one.name)
        change = None if place is None else converter(written.fields[place].dataType, one.dataType, path)
        taken.append((place, nullable(change)))
    return lambda values: row([None if place is None else change(values[place]) for place, change in taken])


def _widened(written: t.DataType, wanted: t.DataType, field: str) -> _One | None:
    if isinstance(written, _INTEGERS):
        if isinstance(wanted, _INTEGERS) and _INTEGERS.index(type(wanted)) > _INTEGERS.index(type(written)):
            return None
        if isinstance(wanted, t.FloatType | t.DoubleType):
            fitted = coercion(wanted, field)
            return lambda number: fitted(float(number))
    if isinstance(written, t.FloatType) and isinstance(wanted, t.DoubleType):
        return None
    raise TypeError(f"its field {field} was {written.simpleString()} and is {wanted.simpleString()}")
