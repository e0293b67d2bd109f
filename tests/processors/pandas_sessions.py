"""Timers by event time with frames: the mean of a sensor when it has been silent for 20 s."""

import pandas as pd
from cases import at, event_timed
from pyspark.sql.streaming import StatefulProcessor

SILENCE_MS = 20_000


class Silence(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._values = handle.getListState("values", "value double")
        self._due = handle.getValueState("due", "due long")

    def handleInputRows(self, key, rows, timerValues):
        frame = pd.concat(list(rows)).sort_values("at")
        self._values.appendList([(value,) for value in frame["value"].tolist()])
        due = int(frame["at"].iloc[-1].timestamp() * 1000) + SILENCE_MS
        before = self._due.get()
        if before is not None and before[0] < due:
            self._handle.deleteTimer(before[0])
        if before is None or before[0] < due:
            self._handle.registerTimer(due)
            self._due.update((due,))
        yield pd.DataFrame()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        values = [value for (value,) in self._values.get()]
        self._values.clear()
        self._due.clear()
        yield pd.DataFrame({"sensor": [key[0]], "mean": [sum(values) / len(values)], "values": [len(values)]})


INPUT = "sensor int, at timestamp, value double"
OUTPUT = "sensor int, mean double, values int"
CHUNKS = [
    [(1, at(0), 1.0), (2, at(1), 10.0), (1, at(3), 2.0)],
    [(1, at(15), 6.0), (3, at(25), 5.0)],
    [(3, at(60), 7.0), (1, at(41), 3.0)],
    [(2, at(100), 1.0)],
]
CASE = event_timed(Silence, INPUT, OUTPUT, CHUNKS, key=("sensor",), delay="2 seconds", pandas=True)
