"""A key of decimal, date, timestamp, binary, boolean, array and struct."""

from datetime import date
from decimal import Decimal

from cases import Case, at
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

COLUMNS = (
    "worth decimal(10,2), day date, moment timestamp, raw binary, yes boolean, small tinyint, list array<int>, "
    "place struct<zip: int, city: string>"
)


class CountTyped(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count int")

    def handleInputRows(self, key, rows, timerValues):
        count = (self._count.get() or (0,))[0] + len(list(rows))
        self._count.update((count,))
        worth, day, moment, raw, yes, small, items, place = key
        yield Row(
            count=count, kinds=[type(part).__name__ for part in key], worth=worth, day=day, moment=moment, raw=raw,
            yes=yes, small=small, list=items, place=place,
        )  # fmt: skip


A = (Decimal("1.10"), date(2026, 1, 1), at(0.000001), b"\x00\x01", True, 1, [1, 2], {"zip": 1, "city": "Ulm"})
B = (Decimal("1.10"), date(2026, 1, 1), at(0.000001), b"\x00", True, 1, [1, 2], {"zip": 1, "city": "Ulm"})
C = (Decimal("-1.10"), date(1960, 1, 1), at(-3e9), b"", False, -1, [], {"zip": None, "city": ""})

CASE = Case(
    CountTyped,
    key=("worth", "day", "moment", "raw", "yes", "small", "list", "place"),
    input=COLUMNS,
    output=f"count int, kinds array<string>, {COLUMNS}",
    chunks=[[A, B, C, A], [B, C], [(*A[:6], [2, 1], A[7]), (*A[:7], {"zip": 1, "city": "ulm"}), A]],
)
