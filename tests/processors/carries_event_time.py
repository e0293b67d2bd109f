"""The output has an event time of its own, which Spark checks against the watermark of the input."""

from cases import at, event_timed
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Latest(StatefulProcessor):
    def init(self, handle):
        self._latest = handle.getValueState("latest", "at timestamp, n int")

    def handleInputRows(self, key, rows, timerValues):
        newest = max(rows, key=lambda row: row.at)
        self._latest.update((newest.at, newest.n))
        yield Row(key=key[0], at=newest.at, n=newest.n)


INPUT = "key string, at timestamp, n int"
OUTPUT = "key string, at timestamp, n int"
CHUNKS = [
    [("a", at(0), 1), ("a", at(3.25), 2), ("b", at(7), 3)],
    [("a", at(1), 4), ("b", at(90.123456), 5)],
    [("a", at(31), 6), ("c", at(30.5), 7)],
]
CASE = event_timed(Latest, INPUT, OUTPUT, CHUNKS, delay="1 minute", event_time_column="at")
