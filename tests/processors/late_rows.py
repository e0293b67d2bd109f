"""Rows below the watermark are dropped before a processor sees them; one at the watermark, too or not."""

from cases import Case, at
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Seen(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getListState("seen", "n int")

    def handleInputRows(self, key, rows, timerValues):
        numbers = sorted(row.n for row in rows)
        self._seen.appendList([(n,) for n in numbers])
        yield Row(key=key[0], numbers=numbers, watermark_ms=timerValues.getCurrentWatermarkInMs())


INPUT = "key string, at timestamp, n int"
OUTPUT = "key string, numbers array<int>, watermark_ms long"
CHUNKS = [
    [("a", at(0), 1), ("b", at(-1000), 2), ("a", at(30), 3)],  # no watermark yet: all are taken
    [("a", at(19.999), 4), ("a", at(20), 5), ("a", at(20.001), 6), ("b", at(5), 7), ("c", at(25), 8)],
    [("d", at(1), 9)],  # nothing but a late one
    [("a", at(100), 10)],
    [("a", at(99), 11), ("c", at(90), 12), ("c", at(89.9), 13)],
]
CASE = Case(Seen, INPUT, OUTPUT, CHUNKS, time="EventTime", watermark=("at", "10 seconds"))
