"""Sums by two key columns of different type; the state has two fields of different type."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import DoubleType, LongType, StructField, StructType


class Sums(StatefulProcessor):
    def init(self, handle):
        schema = StructType([StructField("pieces", LongType()), StructField("worth", DoubleType())])
        self._sums = handle.getValueState("sums", schema)

    def handleInputRows(self, key, rows, timerValues):
        user, shop = key
        pieces, worth = self._sums.get() if self._sums.exists() else (0, 0.0)
        for row in rows:
            pieces += row.pieces
            worth += row.price
        self._sums.update((pieces, worth))
        yield Row(user=user, shop=shop, pieces=pieces, worth=worth)


INPUT = "user string, shop int, pieces int, price double"
OUTPUT = "user string, shop int, pieces long, worth double"
CHUNKS = [
    [("ann", 1, 2, 0.5), ("ann", 2, 1, 1.25), ("bob", 1, 5, 3.5), ("ann", 1, 3, 0.1)],
    [("bob", 2, 1, 1e-9), ("ann", 1, -2, 1e17)],
    [("ann", 2, 4, -7.75), ("cy", -1, 1, 2.0), ("ann1", 2, 1, 1.0)],
]
CASE = Case(Sums, INPUT, OUTPUT, CHUNKS, key=("user", "shop"))
