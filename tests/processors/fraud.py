"""A rule against fraud: a small payment and then a large one within a minute of event time raises an alarm."""

from cases import at, event_timed
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

MINUTE_MS = 60_000


class Fraud(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._small = handle.getValueState("small", "at_ms long, due_ms long")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.at):
            at_ms = int(row.at.timestamp() * 1000)
            flag = self._small.get()
            if flag is not None:
                if row.cents > 50_000 and at_ms - flag[0] <= MINUTE_MS:
                    yield Row(account=key[0], cents=row.cents, seconds=(at_ms - flag[0]) / 1000)
                self._handle.deleteTimer(flag[1])
                self._small.clear()
            if row.cents < 100:
                self._small.update((at_ms, at_ms + MINUTE_MS))
                self._handle.registerTimer(at_ms + MINUTE_MS)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        self._small.clear()
        return iter([])


INPUT = "account long, at timestamp, cents long"
OUTPUT = "account long, cents long, seconds double"
CHUNKS = [
    [(1, at(0), 99), (1, at(20), 60_000), (2, at(5), 50), (3, at(1), 70_000)],
    [(2, at(30), 1_000), (3, at(31), 5), (4, at(32), 50)],
    [(2, at(40), 80_000), (3, at(90.5), 90_000)],  # 3 within the minute, 4 not at all
    [(4, at(160), 90_000), (1, at(150), 1)],
    [(1, at(209.5), 50_001), (4, at(300), 1)],
]
CASE = event_timed(Fraud, INPUT, OUTPUT, CHUNKS, key=("account",), delay="10 seconds")
