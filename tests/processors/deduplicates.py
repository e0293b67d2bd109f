"""Deduplication with time to live: an event's id counts as seen for an hour, in another state for 1 ms."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

HOUR_MS = 3_600_000


class Deduplicate(StatefulProcessor):
    def init(self, handle):
        self._long = handle.getValueState("long", "at int", HOUR_MS)
        self._short = handle.getValueState("short", "at int", ttlDurationMs=1)
        self._list = handle.getListState("short_list", "at int", 1)
        self._map = handle.getMapState("short_map", "at int", "times int", 1)
        self._ids = handle.getMapState("ids", "id string", "at int", HOUR_MS)

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            new = not self._ids.containsKey((row.id,))
            short = self._short.exists(), self._list.exists(), self._map.exists()
            yield Row(key=key[0], n=row.n, new=new, first=not self._long.exists(), short=list(short))
            if new:
                self._ids.updateValue((row.id,), (row.n,))
            self._long.update((row.n,))
            self._short.update((row.n,))
            self._list.appendValue((row.n,))
            self._map.updateValue((row.n,), (1,))


INPUT = "key string, n int, id string"
OUTPUT = "key string, n int, new boolean, first boolean, short array<boolean>"
CHUNKS = [
    [("a", 0, "x"), ("a", 1, "x"), ("a", 2, "y"), ("b", 3, "x")],
    [("a", 4, "x"), ("a", 5, "z"), ("c", 6, "x")],
    [("b", 7, "x"), ("b", 8, "w"), ("a", 9, "z")],
]
CASE = Case(Deduplicate, INPUT, OUTPUT, CHUNKS, time="processingTime", wait_ms=100)
