"""Event time without a watermark: none is ever reached, so no timer goes off and no row is late."""

from cases import Case, at, at_ms
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

EARLY = at_ms(5)


class NoWatermark(StatefulProcessor):
    def init(self, handle):
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self._handle.registerTimer(EARLY)
        yield Row(key=key[0], rows=len(list(rows)), watermark=timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(key="gone off", rows=0, watermark=0)


INPUT = "key string, ts timestamp"
OUTPUT = "key string, rows int, watermark long"
CHUNKS = [[("a", at(10)), ("b", at(0))], [("a", at(1))], [("b", at(100))]]
CASE = Case(NoWatermark, INPUT, OUTPUT, CHUNKS, time="eventTime")
