"""Every type in state and output: what was put there is what a processor gets back, in kind and value."""

from datetime import UTC, date, datetime
from decimal import Decimal

from cases import Case, at
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

COLUMNS = (
    "small tinyint, short smallint, whole int, long bigint, single float, double double, yes boolean, text string, "
    "raw binary, worth decimal(12,3), large decimal(38,0), day date, moment timestamp, list array<array<int>>, "
    "map map<string, struct<n: int, tags: array<string>>>, local timestamp_ntz, "
    "record struct<day: date, worth: decimal(5,2)>"
)


class Typed(StatefulProcessor):
    def init(self, handle):
        self._value = handle.getValueState("value", COLUMNS)
        self._list = handle.getListState("list", COLUMNS)
        self._map = handle.getMapState("map", "day date, worth decimal(12,3)", COLUMNS)

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            names = [name for name in row.__fields__ if name not in {"key", "n", "partition", "offset"}]
            came = [getattr(row, name) for name in names]
            fields = tuple(dict(one) if name == "map" and one else one for name, one in zip(names, came, strict=True))
            before = self._value.get()
            self._value.update(fields)
            self._list.appendValue(fields)
            if row.day is not None:
                self._map.updateValue((row.day, row.worth), fields)
            after = self._value.get()
            yield Row(
                key=key[0],
                n=row.n,
                came=", ".join(f"{name}={type(value).__name__}" for name, value in zip(names, came, strict=True)),
                got=", ".join(f"{name}={type(value).__name__}" for name, value in zip(names, after, strict=True)),
                before=str([sorted(one.items()) if isinstance(one, dict) else one for one in before or ()]),
                after=str([sorted(one.items()) if isinstance(one, dict) else one for one in after]),
                **dict(zip(names, fields, strict=True)),
            )


ONE = (
    -128, 32767, -5, 1 << 62, 0.5, 1e-300, True, 'a "quoted" ünïcode\n', b"\x00\xff\x10", Decimal("-12.500"),
    Decimal("12345678901234567890123456789012345678"), date(1969, 12, 31), at(1.234567), [[1, 2], [], [3]],
    {"k": {"n": 1, "tags": ["x", ""]}, "": {"n": 2, "tags": []}}, "2026-03-29T02:30:00.000001",
    {"day": date(2024, 2, 29), "worth": Decimal("1.10")},
)  # fmt: skip
NONE = (None,) * len(ONE)
OTHER = (
    0, 0, 0, 0, -0.0, 1.0, False, "", b"", Decimal("0"), Decimal("-1"), date(9999, 12, 31),
    datetime(1900, 1, 1, tzinfo=UTC), [], {}, "0001-01-01T00:00:00",
    {"day": None, "worth": None},
)  # fmt: skip

INPUT = f"key string, n int, {COLUMNS}"
OUTPUT = f"key string, n int, came string, got string, before string, after string, {COLUMNS}"
CHUNKS = [
    [("a", 0, *ONE), ("b", 1, *NONE)],
    [("a", 2, *NONE), ("b", 3, *OTHER), ("c", 4, *OTHER)],
    [("a", 5, *ONE), ("c", 6, *ONE)],
]
CASE = Case(Typed, INPUT, OUTPUT, CHUNKS)
