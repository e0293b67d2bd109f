"""Timers that are registered for a time that the watermark has passed already, by rows and by timers."""

from cases import Case, at
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Overdue(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._left = handle.getValueState("left", "left int")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            self._left.update((row.again,))
            self._handle.registerTimer(row.due)
        yield Row(key=key[0], what="rows", due=None)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        (left,) = self._left.get()
        if left:
            self._left.update((left - 1,))
            self._handle.registerTimer(expiredTimerInfo.getExpiryTimeInMs() + 1000)
        yield Row(key=key[0], what=f"timer, {left} left", due=expiredTimerInfo.getExpiryTimeInMs())


def due(seconds):
    return int(at(seconds).timestamp() * 1000)


INPUT = "key string, at timestamp, due long, again int"
OUTPUT = "key string, what string, due long"
CHUNKS = [
    [("a", at(0), due(100), 0), ("b", at(100), due(101), 3)],
    [("c", at(101), due(2), 0), ("d", at(101), due(50), 2)],  # overdue in the epoch of their rows
    [("e", at(200), due(200), 1)],
    [("f", at(400), due(400), 0)],
    [("g", at(401), due(500), 0)],
]
CASE = Case(Overdue, INPUT, OUTPUT, CHUNKS, time="eventTime", watermark=("at", "0 seconds"), whole=True)
