"""Text in a state variable of whole numbers."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class TextState(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "n int")

    def handleInputRows(self, key, rows, timerValues):
        self._count.update(("many",))
        return iter([])


CASE = Case(TextState, key=("key",), input="key string", output="key string", chunks=[[("a",)]], says=("count", "many"))
