"""Rows of state as JSON, in lines and in Parquet, and what two epochs differ in."""

import base64
import json
import math
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import Row

from impls.driver.keystate import StateRow
from impls.reading.state import StateAt, in_batches

TEXTS = pa.schema(
    [("bin", pa.int32()), ("key", pa.string()), ("kind", pa.string()), ("name", pa.string()), ("field", pa.string()),
     ("value", pa.string())]
)  # fmt: skip
"""The columns of rows of state with key, field and value as JSON."""


def json_text(value: Any) -> str:
    """Returns a key, a field or a value as JSON.

    A Row is an object, bytes are base64; decimals, times, durations, NaN and infinite numbers are strings.

    >>> json_text(Row(user="u1", day=date(2026, 1, 2)))
    '{"user":"u1","day":"2026-01-02"}'
    """
    return str(value) if type(value) is int else _encode(_plain(value))


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_AS_THEY_ARE = {int, str, bool, type(None)}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_TEXTS: dict[type, Callable[[Any], Any]] = {
    bytes: _base64, bytearray: _base64, float: lambda value: value if math.isfinite(value) else str(value),
    Decimal: str, timedelta: str, date: lambda value: value.isoformat(),
}  # fmt: skip


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it; a map whose keys are no text is a list of pairs."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        texts = all(isinstance(key, str) for key in value)
        pairs = [(key, _plain(part)) for key, part in value.items()]
        return dict(pairs) if texts else [[_plain(key), part] for key, part in pairs]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    text = next((make for kind, make in _TEXTS.items() if isinstance(value, kind)), None)
    return value if text is None else text(value)


def fields_of(row: StateRow) -> dict[str, Any]:
    """Returns a row as an object of JSON, without a name or field where there is none."""
    found = {"bin": row.bin, "key": _plain(row.key), "kind": row.kind}
    found |= {"name": row.name} if row.name else {}
    found |= {} if row.field is None else {"field": _plain(row.field)}
    return {**found, "value": _plain(row.value)}


def is_of_key(row: StateRow, key: str) -> bool:
    """Returns whether a row is of a key as a user writes it: its text, that of its only column, or its JSON."""
    texts = [str(row.key), json_text(row.key)]
    if isinstance(row.key, Row) and len(row.key) == 1:
        texts.append(str(row.key[0]))
    if isinstance(row.key, bytes):
        texts.append(row.key.decode(errors="replace"))
    return key in texts


def write_parquet(state: StateAt, path: Path) -> int:
    """Writes all rows of a state with key, field and value as JSON, and returns their number.

    The schema's metadata have the query and the epoch.
    """
    schema, number = TEXTS.with_metadata({"query": state.query, "epoch": str(state.epoch)}), 0
    with pq.ParquetWriter(path, schema) as writer:
        for batch in text_batches(state.every_row()):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            number += batch.num_rows
    return number


def text_batches(every: Iterator[StateRow]) -> Iterator[pa.RecordBatch]:
    """Yields rows in batches, with key, field and value as JSON."""
    for rows in in_batches(every):
        columns = [
            [row.bin for row in rows], [json_text(row.key) for row in rows], [row.kind for row in rows],
            [row.name for row in rows], [None if row.field is None else json_text(row.field) for row in rows],
            [json_text(row.value) for row in rows],
        ]  # fmt: skip
        yield pa.record_batch(
            [pa.array(column, type_) for column, type_ in zip(columns, TEXTS.types, strict=True)], schema=TEXTS
        )


def differences(before: StateAt, after: StateAt) -> Iterator[tuple[StateRow | None, StateRow | None]]:
    """Yields (row before, row after) of what differs between two epochs of a query, None where there is no row."""
    for bin_ in range(after.bins):
        old, new = ({_place(row): row for row in state.rows(bin_)} for state in (before, after))
        for place in dict.fromkeys([*old, *new]):
            one, other = old.get(place), new.get(place)
            if one is None or other is None or json_text(one.value) != json_text(other.value):
                yield one, other


def _place(row: StateRow) -> tuple[str, ...]:
    """Returns what names a row: of a timer also its time, as a key may have several."""
    time = json_text(row.value) if row.kind == "timer" else ""
    return json_text(row.key), row.kind, row.name, json_text(row.field), time
