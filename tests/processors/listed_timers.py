"""Timers that are listed, deleted, registered twice, and registered by a timer."""

from cases import Case, at
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Timers(StatefulProcessor):
    def init(self, handle):
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            for ms in row.register or []:
                self._handle.registerTimer(ms)
            for ms in row.delete or []:
                self._handle.deleteTimer(ms)
            watermark = timerValues.getCurrentWatermarkInMs()
            yield Row(key=key[0], n=row.n, at_ms=watermark, timers=sorted(self._handle.listTimers()))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        at_ms = expiredTimerInfo.getExpiryTimeInMs()
        if at_ms % 1000 == 1:
            self._handle.registerTimer(at_ms + 100_000)
        yield Row(key=key[0], n=-1, at_ms=at_ms, timers=sorted(self._handle.listTimers()))


def ms(*seconds):
    return [int(at(s).timestamp() * 1000) for s in seconds]


INPUT = "key long, n int, at timestamp, register array<long>, delete array<long>"
OUTPUT = "key long, n int, at_ms long, timers array<long>"
CHUNKS = [
    [(1, 0, at(0), ms(30, 10, 20, 10, 50), None), (2, 1, at(1), ms(10), ms(99))],
    [(1, 2, at(5), ms(15.001), ms(20)), (2, 3, at(6), ms(40), ms(10))],
    [(3, 4, at(10), None, None), (1, 5, at(30), None, None)],  # due below 30 s
    [(1, 6, at(31), None, ms(30)), (3, 7, at(60), ms(70), ms(70))],
    [(4, 8, at(200), None, None)],
]
CASE = Case(Timers, INPUT, OUTPUT, CHUNKS, time="eventtime", watermark=("at", "0 seconds"))
