"""A state variable that is made when the rows are there."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class MakesLate(StatefulProcessor):
    def init(self, handle):
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self._handle.getValueState("late", "n int").update((1,))
        return iter([])


CASE = Case(MakesLate, key=("key",), input="key string", output="key string", chunks=[[("a",)]], says=("late", "init"))
