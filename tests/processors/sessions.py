"""Sessions by event time: a timer 30 s behind the last event, which each new event puts off."""

from cases import at, event_timed
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

GAP_MS = 30_000


class Sessions(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._session = handle.getValueState("session", "begin_ms long, end_ms long, events int")

    def handleInputRows(self, key, rows, timerValues):
        times = [int(row.at.timestamp() * 1000) for row in rows]
        begin, end, events = self._session.get() or (min(times), None, 0)
        if end is not None:
            self._handle.deleteTimer(end + GAP_MS)
        end = max(times) if end is None else max(end, *times)
        self._session.update((min(begin, *times), end, events + len(times)))
        self._handle.registerTimer(end + GAP_MS)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        begin, end, events = self._session.get()
        self._session.clear()
        late = expiredTimerInfo.getExpiryTimeInMs() - end
        yield Row(user=key[0], begin_ms=begin, end_ms=end, events=events, late_ms=late)


INPUT = "user string, at timestamp"
OUTPUT = "user string, begin_ms long, end_ms long, events int, late_ms long"
CHUNKS = [
    [("ann", at(0)), ("bob", at(3)), ("ann", at(10)), ("cy", at(12.5))],
    [("ann", at(35)), ("dora", at(45))],  # the watermark passes bob's and is at 40 s
    [("bob", at(60)), ("ann", at(71))],  # cy's session ends, and ann's: her next one begins
    [("eve", at(200))],
    [("ann", at(210)), ("eve", at(260))],
]
CASE = event_timed(Sessions, INPUT, OUTPUT, CHUNKS, key=("user",), delay="5 seconds")
