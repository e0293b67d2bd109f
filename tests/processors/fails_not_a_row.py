"""A tuple where a Row is asked for."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class GivesTuples(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield (key[0],)


INPUT = "key string"
OUTPUT = "key string"
CHUNKS = [[("a",)]]
CASE = Case(GivesTuples, INPUT, OUTPUT, CHUNKS, key=("key",), says=("tuple", "Row"))
