"""Rows of a table as JSON texts, by the rules of Spark's `to_json`: nulls are left out, NaN is a string."""

import base64
import json
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa

__all__ = ["json_rows"]


def json_rows(table: pa.Table) -> list[bytes]:
    """Returns each row as a JSON object in UTF-8, with one text made column by column."""
    parts = [_fields(name, table.column(name)) for name in table.column_names]
    rows = zip(*parts, strict=True) if parts else iter([()] * len(table))
    return [("{" + ",".join([field for field in row if field]) + "}").encode() for row in rows]


def _fields(name: str, column: pa.ChunkedArray) -> list[str]:
    head, text = json.dumps(name, ensure_ascii=False) + ":", _text_of(column.type)
    return ["" if value is None else head + text(value) for value in column.to_pylist()]


def _text_of(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_struct(kind):
        parts = [(field.name, json.dumps(field.name) + ":", _text_of(field.type)) for field in kind]
        return lambda row: (
            "{" + ",".join([head + text(row[name]) for name, head, text in parts if row[name] is not None]) + "}"
        )
    return next((text for is_kind, text in _TEXTS if is_kind(kind)), _string_text)


def _string_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _real_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else _NOT_FINITE[repr(value)]


_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def _timestamp_text(value: datetime) -> str:
    zone = "" if value.tzinfo is None else "Z"
    return f'"{value.replace(tzinfo=None).isoformat(timespec="milliseconds")}{zone}"'


_TEXTS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]]] = [
    (pa.types.is_integer, str),
    (pa.types.is_decimal, lambda value: f"{value:f}"),
    (pa.types.is_floating, _real_text),
    (pa.types.is_boolean, lambda value: "true" if value else "false"),
    (pa.types.is_binary, lambda value: f'"{base64.b64encode(value).decode()}"'),
    (pa.types.is_timestamp, _timestamp_text),
    (pa.types.is_date, lambda value: f'"{value.isoformat()}"'),
]
