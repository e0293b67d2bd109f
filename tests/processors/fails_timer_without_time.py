"""A timer in time mode none."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class Times(StatefulProcessor):
    def init(self, handle):
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self._handle.registerTimer(1_000)
        return iter([])


INPUT = "key string"
OUTPUT = "key string"
CHUNKS = [[("a",)]]
CASE = Case(Times, INPUT, OUTPUT, CHUNKS, key=("key",), says=("timer", "time mode"))
