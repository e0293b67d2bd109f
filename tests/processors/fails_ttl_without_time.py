"""A time to live in time mode none."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class Lives(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getValueState("seen", "n int", 1000)

    def handleInputRows(self, key, rows, timerValues):
        self._seen.update((1,))
        return iter([])


CASE = Case(Lives, key=("key",), input="key string", output="key string", chunks=[[("a",)]], says=("seen", "time mode"))
