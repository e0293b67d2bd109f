"""A processor that registers a timer at a time that is no number of 64 bits."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Beyond(StatefulProcessor):
    def init(self, handle):
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self._handle.registerTimer(2**63 - 1 + len(list(rows)))
        yield Row(key=key[0])


CASE = Case(Beyond, "key string", "key string", [[("a",)]], time="processingTime", says=("ValueError", "out of range"))
