"""A tuple where a Row is asked for."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class GivesTuples(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield (key[0],)


CASE = Case(
    GivesTuples, key=("key",), input="key string", output="key string", chunks=[[("a",)]], says=("tuple", "Row")
)
