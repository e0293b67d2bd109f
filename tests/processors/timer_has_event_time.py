"""A row of a timer has the timer's time as its event time, which the watermark of the epoch has passed."""

from datetime import UTC, datetime

from cases import at, event_timed
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

SILENCE_MS = 10_000


class Closed(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._open = handle.getValueState("open", "n int, due long")

    def handleInputRows(self, key, rows, timerValues):
        rows = list(rows)
        n, before = self._open.get() or (0, None)
        due = max(int(row.at.timestamp() * 1000) for row in rows) + SILENCE_MS
        if before is not None and before != due:
            self._handle.deleteTimer(before)
        if before != due:
            self._handle.registerTimer(due)
        self._open.update((n + len(rows), due))
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        n, due = self._open.get()
        self._open.clear()
        yield Row(key=key[0], closed=datetime.fromtimestamp(due / 1000, UTC), n=n)


INPUT = "key string, at timestamp, n int"
OUTPUT = "key string, closed timestamp, n int"
CHUNKS = [
    [("a", at(0), 1), ("a", at(3.25), 2), ("b", at(7), 3)],
    [("c", at(40), 4), ("a", at(39), 5)],
    [("a", at(90), 6)],
    [("d", at(300), 7)],
    [("d", at(301), 8)],
]
CASE = event_timed(Closed, INPUT, OUTPUT, CHUNKS, delay="1 second", event_time_column="closed", whole=True)
