"""Rows as JSON texts, as Spark's `to_json` has them: by the Arrow types of columns, times in the session's time zone.

Nulls are left out, but for those of arrays and maps. Times are given to the millisecond, or to the microsecond for
sinks that read them back.
"""

import base64
import datetime as dt
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import orjson
import pyarrow as pa

from impls.errors import UsageError

Written = Callable[[pa.Table | pa.RecordBatch], list[bytes]]
_One = Callable[[Any], Any]
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_SHORT = {  # names that Java knows and the time zone database does not
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "Z": "UTC", "UT": "UTC",
}  # fmt: skip


@cache
def zone_of(name: str) -> dt.tzinfo:
    """Returns a session's time zone: a region, an offset such as +05:30 or UTC+1, or one of Java's short names.

    Raises UsageError for another name.
    """
    try:
        if (found := _OFFSET.fullmatch(name)) is None:
            return ZoneInfo(_SHORT.get(name, name))
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        size = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return dt.timezone(size if found[1] == "+" else -size)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise UsageError(
            f"The session's time zone {name!r} is unknown here: set spark.sql.session.timeZone to a region or offset."
        ) from error


def json_rows(schema: pa.Schema, zone: str, *, micros: bool = False) -> Written:
    """Returns the function that makes JSON objects, as bytes, of the rows of a table with a schema's columns.

    Args:
        schema: names and types; timestamps with a time zone are instants, others local.
        zone: the session's time zone, see `zone_of`.
        micros: times are given to the microsecond.

    Raises:
        UsageError: values of one of the types have no form in JSON here, or the zone is unknown.
    """
    how = _Times(zone_of(zone), "microseconds" if micros else "milliseconds")
    writers = [_writer(field.type, how, field.name) for field in schema]
    kinds = [(field.type, _with_numbers(field.type)) for field in schema]
    names, dumps = schema.names, orjson.dumps

    def written(table: pa.Table | pa.RecordBatch) -> list[bytes]:
        columns = []
        for column, write, (kind, numbers) in zip(table.columns, writers, kinds, strict=True):
            values = _cast(column, kind, numbers).to_pylist()
            columns.append(values if write is None else [None if v is None else write(v) for v in values])
        if not columns:
            return [b"{}"] * len(table)
        return [
            dumps({name: value for name, value in zip(names, row, strict=True) if value is not None})
            for row in zip(*columns, strict=True)
        ]

    return written


def _cast(column: Any, kind: pa.DataType, numbers: pa.DataType) -> Any:
    column = column if column.type == kind else column.cast(kind)
    return column if numbers == kind else column.cast(numbers)


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """Returns a type with numbers for times, some of which no Python object can be."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _with_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    return pa.list_(_with_numbers(kind.value_type)) if pa.types.is_list(kind) else kind


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of local times too
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the calendar repeats, weekdays too
_DAY_US = 86_400_000_000
_LOW, _HIGH = -719_161, 2_932_894  # days that stay within Python's years in any time zone


@dataclass(frozen=True)
class _Times:
    """How times are written, which come in µs or days since 1970."""

    zone: dt.tzinfo
    precision: str

    def zoned(self, us: int) -> str:
        value, years = _moment(us)
        text = _with_year(value.replace(tzinfo=dt.UTC).astimezone(self.zone), years, self.precision)
        return text[:-6] + "Z" if text.endswith("+00:00") else text

    def local(self, us: int) -> str:
        value, years = _moment(us)
        return _with_year(value, years, self.precision)


def _moment(us: int) -> tuple[dt.datetime, int]:
    """Returns a time, and the years by which it was brought among those that Python knows."""
    days, rest = divmod(us, _DAY_US)
    cycles = 0
    if days >= _HIGH:
        cycles = 1 + (days - _HIGH) // _CYCLE_DAYS
    elif days <= _LOW:
        cycles = -1 - (_LOW - days) // _CYCLE_DAYS
    return _EPOCH + dt.timedelta(days - cycles * _CYCLE_DAYS, 0, rest), cycles * _CYCLE_YEARS


def _with_year(value: dt.datetime, years: int, precision: str) -> str:
    text = value.isoformat(timespec=precision)
    return text if not years else _year(value.year + years) + text[4:]


def _year(number: int) -> str:
    """Returns a year as Java writes it."""
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{sign}{abs(number):04}"


def _date(days: int) -> str:
    value, years = _moment(days * _DAY_US)
    return _year(value.year + years) + value.strftime("-%m-%d")


def _writer(kind: pa.DataType, how: _Times, where: str) -> _One | None:  # noqa: PLR0911 - a return for each type
    """Returns what makes of a value, which is not null, one that orjson writes; None where it is one."""
    types = pa.types
    if any(is_kind(kind) for is_kind in (types.is_integer, types.is_boolean, types.is_string, types.is_null)):
        return None
    if types.is_float32(kind):
        return lambda value: number(float(str(np.float32(value))))  # its shortest form, as Java gives it
    if types.is_float64(kind):
        return number
    if types.is_decimal(kind):
        return lambda value: orjson.Fragment(str(value))
    if types.is_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if types.is_date32(kind):
        return _date
    if types.is_timestamp(kind):
        return how.local if kind.tz is None else how.zoned
    if types.is_list(kind):
        return each(nullable(_writer(kind.value_type, how, where)))
    if types.is_map(kind):
        key, item = _key_of(kind.key_type), nullable(_writer(kind.item_type, how, where))
        return lambda value: {key(k): item(v) for k, v in value}
    if types.is_struct(kind):
        fields = {field.name: nullable(_writer(field.type, how, where)) for field in kind}
        return lambda value: {n: write(value[n]) for n, write in fields.items() if value[n] is not None}
    raise UsageError(f"The output column {where} has the type {kind}, which has no form in JSON: cast it to a string.")


def nullable(function: _One | None) -> _One:
    """Returns a function that leaves None as it is, and every value where there is no function for it."""
    return (lambda value: value) if function is None else lambda value: None if value is None else function(value)


def each(function: _One) -> _One:
    """Returns a function that makes a list of the items of a list."""
    return lambda value: [function(item) for item in value]


def number(value: float) -> Any:
    """Returns a number as JSON has it, those without a form there as texts."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _key_of(kind: pa.DataType) -> Callable[[Any], str]:
    """Returns what makes the text of a map's key; times are numbers there, as in Spark."""
    return (lambda value: "true" if value else "false") if pa.types.is_boolean(kind) else str
