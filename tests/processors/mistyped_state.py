"""Values of other types than a state variable's: Spark keeps null, text of what is to be text, or a shorter number."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Mistyped(StatefulProcessor):
    def init(self, handle):
        self._value = handle.getValueState("value", "whole int, single float, double double, text string, yes boolean")

    def handleInputRows(self, key, rows, timerValues):
        before = self._value.get()
        self._value.update(("many", 1.1, 1, 5, 1) if before is None else ((1 << 32) + 7, 2, 1.5, True, "no"))
        yield Row(key=key[0], before=str(before), after=str(self._value.get()))


CASE = Case(
    Mistyped,
    key=("key",),
    input="key string",
    output="key string, before string, after string",
    chunks=[[("a",)], [("a",), ("b",)]],
)
