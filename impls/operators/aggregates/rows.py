"""Rows of a table as bytes, for state, and the types that their columns may have.

A row has a bit for each column, set where it is not null, then the fields one after the other, little-endian. Of a
string or binary field its length is there (uint32), and its bytes follow behind all fields. Null fields are zeros, so
equal rows are equal bytes.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import OperatorError, UsageError

_LENGTH_BYTES = 4


def _is_variable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class RowCodec:
    """encode() of columns, decode() of rows; both are loops over columns, and over rows where they have strings."""

    def __init__(self, kinds: Sequence[pa.DataType]):
        self.kinds = tuple(kinds)
        self._stored = [pa.uint8() if pa.types.is_boolean(kind) else kind for kind in self.kinds]
        widths = [_LENGTH_BYTES if _is_variable(kind) else kind.bit_width // 8 for kind in self._stored]
        self._bits = -(-len(self.kinds) // 8)
        self._places = [self._bits + sum(widths[:n]) for n in range(len(widths))]
        self._widths, self._size = widths, self._bits + sum(widths)
        self._variable = [n for n, kind in enumerate(self.kinds) if _is_variable(kind)]

    def encode(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Returns the rows of columns of equal length."""
        rows = np.zeros((len(columns[0]), self._size), np.uint8)
        for n, (column, kind) in enumerate(zip(columns, self._stored, strict=True)):
            valid = np.asarray(column.is_valid())
            rows[:, n // 8] |= valid.astype(np.uint8) << np.uint8(n % 8)
            fields = _lengths(column) if n in self._variable else _fixed(column.cast(kind), self._widths[n])
            rows[:, self._places[n] : self._places[n] + self._widths[n]] = np.where(valid[:, None], fields, 0)
        raw, size = rows.tobytes(), self._size
        out = [raw[at : at + size] for at in range(0, len(raw), size)]
        for n in self._variable:
            tails = columns[n].cast(pa.binary()).fill_null(b"").to_pylist()
            out = [row + tail for row, tail in zip(out, tails, strict=True)]
        return out

    def decode(self, rows: Sequence[bytes | None]) -> list[pa.Array]:
        """Returns the columns of rows; a row that is None has nulls only. Raises OperatorError for other bytes."""
        whole = [bytes(self._size) if row is None else row for row in rows]
        raw = b"".join([row[: self._size] for row in whole] if self._variable else whole)
        if len(raw) != len(whole) * self._size:
            raise OperatorError(f"A row of aggregates is not {self._size} bytes long: it is of other aggregates.")
        fields = np.frombuffer(raw, np.uint8).reshape(-1, self._size)
        ends = np.full(len(whole), self._size, np.int64)
        out = []
        for n, kind in enumerate(self.kinds):
            valid = (fields[:, n // 8] >> np.uint8(n % 8)) & 1 == 1
            own = np.ascontiguousarray(fields[:, self._places[n] : self._places[n] + self._widths[n]])
            if n not in self._variable:
                out.append(_array(own, valid, self._stored[n]).cast(kind))
                continue
            begins, ends = ends, ends + own.view("<u4")[:, 0]
            cut = [row[a:b] for row, a, b in zip(whole, begins.tolist(), ends.tolist(), strict=True)]
            out.append(pa.array(cut, pa.binary(), mask=~valid).cast(kind))
        return out


def _fixed(column: pa.Array, width: int) -> NDArray[np.uint8]:
    """Returns the bytes of a column of fixed width, shape (n, width); those of nulls are anything."""
    data = column.buffers()[1]
    raw = np.frombuffer(data, np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    return raw.reshape(-1, width)


def _lengths(column: pa.Array) -> NDArray[np.uint8]:
    lengths = np.array([len(value) for value in column.cast(pa.binary()).fill_null(b"").to_pylist()], "<u4")
    return lengths.view(np.uint8).reshape(-1, _LENGTH_BYTES)


def _array(fields: NDArray[np.uint8], valid: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(fields), [bits, pa.py_buffer(fields.tobytes())])


DECIMAL_DIGITS = 38
WINDOW = "struct<start:timestamp,end:timestamp>"  # what Spark's `window` gives, a key's type only
_PLAIN = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def key_type(name: str) -> pa.DataType:
    """Returns the Arrow type of a key's column, which may be a window; raises UsageError for another."""
    if name != WINDOW:
        return arrow_type(name)
    return pa.struct([(part, _PLAIN["timestamp"]) for part in ("start", "end")])


def decimal_of(name: str) -> tuple[int, int] | None:
    """Returns precision and scale of a decimal type by its name, None for another type.

    >>> decimal_of("decimal(10,2)")
    (10, 2)
    """
    found = _DECIMAL.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def arrow_type(name: str) -> pa.DataType:
    """Returns the Arrow type of a type of Spark's; raises UsageError for one that no key or aggregate can have."""
    if decimal := decimal_of(name):
        return pa.decimal128(*decimal)
    if name not in _PLAIN:
        known = ", ".join([*_PLAIN, "decimal(p,s)"])
        raise UsageError(f"Keys and aggregates cannot be of type {name}: use one of {known}.")
    return _PLAIN[name]
