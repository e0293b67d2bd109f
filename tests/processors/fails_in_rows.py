"""A processor that raises an error of its own at its second chunk."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Raises(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "n int")

    def handleInputRows(self, key, rows, timerValues):
        if self._count.exists():
            raise ValueError(f"the shelf of {key[0]!r} is full")
        self._count.update((1,))
        yield Row(key=key[0])


INPUT = "key string"
OUTPUT = "key string"
CHUNKS = [[("a",), ("b",)], [("b",)]]
CASE = Case(Raises, INPUT, OUTPUT, CHUNKS, says=("ValueError: the shelf of 'b' is full",))
