"""Timers by processing time: a reminder soon after the first row of a key, and one that is far away."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

FAR_MS = 4_000_000_000_000


class Reminders(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._rows = handle.getValueState("rows", "rows int")

    def handleInputRows(self, key, rows, timerValues):
        now = timerValues.getCurrentProcessingTimeInMs()
        count = len(list(rows))
        before = self._rows.get()
        if before is None:
            self._handle.registerTimer(now + 50)
            if key[0] == "far":
                self._handle.registerTimer(FAR_MS)
        self._rows.update(((before or (0,))[0] + count,))
        yield Row(key=key[0], what="rows", rows=count, timed=now > 1_700_000_000_000)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        due = expiredTimerInfo.getExpiryTimeInMs() <= timerValues.getCurrentProcessingTimeInMs()
        left = len(list(self._handle.listTimers()))
        yield Row(key=key[0], what=f"timer, {left} in the list", rows=self._rows.get()[0], timed=due)
        if key[0] != "keep":
            self._rows.clear()


INPUT = "key string"
OUTPUT = "key string, what string, rows int, timed boolean"
CHUNKS = [[("a",), ("a",), ("far",)], [("a",), ("keep",)], [("keep",), ("a",), ("b",)]]
CASE = Case(Reminders, INPUT, OUTPUT, CHUNKS, time="processingTime", wait_ms=400)
