"""A value state that is given None."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class GivesNone(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getValueState("seen", "n int")

    def handleInputRows(self, key, rows, timerValues):
        self._seen.update(None)
        return iter([])


CASE = Case(GivesNone, key=("key",), input="key string", output="key string", chunks=[[("a",)]], says=("seen", "None"))
