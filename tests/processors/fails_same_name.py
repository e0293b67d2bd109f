"""Two state variables of one name."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class SameName(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count long")
        self._other = handle.getListState("count", "count long")

    def handleInputRows(self, key, rows, timerValues):
        return iter([])


CASE = Case(SameName, key=("key",), input="key string", output="key string", chunks=[[("a",)]], says=("count",))
