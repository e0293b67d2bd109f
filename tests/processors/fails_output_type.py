"""An output row with text where the schema has a number."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Texts(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield Row(key=key[0], n="many")


INPUT = "key string"
OUTPUT = "key string, n int"
CHUNKS = [[("a",)]]
CASE = Case(Texts, INPUT, OUTPUT, CHUNKS, key=("key",), says=("many", "int"))
