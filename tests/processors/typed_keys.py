"""A key of decimal, date, timestamp, binary, boolean and a small number; Spark 4.3 takes no arrays in such a key."""

from datetime import date
from decimal import Decimal

from cases import Case, at
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

COLUMNS = "worth decimal(10,2), day date, moment timestamp, raw binary, yes boolean, small tinyint, short smallint"


class CountTyped(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count int")

    def handleInputRows(self, key, rows, timerValues):
        count = (self._count.get() or (0,))[0] + len(list(rows))
        self._count.update((count,))
        worth, day, moment, raw, yes, small, short = key
        yield Row(
            count=count, kinds=[type(part).__name__ for part in key], worth=worth, day=day, moment=moment, raw=raw,
            yes=yes, small=small, short=short,
        )  # fmt: skip


A = (Decimal("1.10"), date(2026, 1, 1), at(0.000001), b"\x00\x01", True, 1, 300)
B = (Decimal("1.10"), date(2026, 1, 1), at(0.000001), b"\x00", True, 1, 300)
C = (Decimal("-1.10"), date(1960, 1, 1), at(-3e9), b"", False, -1, -32768)

INPUT = COLUMNS
OUTPUT = f"count int, kinds array<string>, {COLUMNS}"
CHUNKS = [[A, B, C, A], [B, C], [(*A[:5], -1, A[6]), (*A[:6], None), A]]
CASE = Case(CountTyped, INPUT, OUTPUT, CHUNKS, key=("worth", "day", "moment", "raw", "yes", "small", "short"))
