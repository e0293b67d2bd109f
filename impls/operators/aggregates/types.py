"""Spark's names of types as Arrow types: those that keys and aggregates can have."""

import re

import pyarrow as pa

from impls.errors import UsageError

__all__ = ["DECIMAL_DIGITS", "WINDOW", "arrow_type", "decimal_of", "key_type"]

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
