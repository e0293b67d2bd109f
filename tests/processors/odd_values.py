"""Values of other types than the state's schema: Spark keeps some in another form and drops others without a word."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

SCHEMA = "whole int, text string, real double, yes boolean"
ODD = {
    "text for a number": ("many", "many", "many", "many"),
    "numbers": (7, 7, 7, 7),
    "too large": ((1 << 40) + 5, 1 << 40, float(1 << 40), False),
    "booleans": (True, True, True, True),
    "real numbers": (1.5, 1.5, 1.5, 1.5),
    "bytes": (b"1", None, b"1", b"1"),  # as text Spark keeps the address of a Java object
    "lists": ([1], [1], [1], [1]),
}


class Odd(StatefulProcessor):
    def init(self, handle):
        self._value = handle.getValueState("value", SCHEMA)
        self._list = handle.getListState("list", SCHEMA)

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            self._value.update(ODD[row.what])
            self._list.appendValue(ODD[row.what])
            yield Row(key=key[0], n=row.n, value=str(self._value.get()), items=[str(one) for one in self._list.get()])


INPUT = "key string, n int, what string"
OUTPUT = "key string, n int, value string, items array<string>"
CHUNKS = [
    [("a", 0, "text for a number"), ("a", 1, "numbers"), ("b", 2, "booleans")],
    [("a", 3, "too large"), ("b", 4, "real numbers"), ("b", 5, "bytes"), ("c", 6, "lists")],
]
CASE = Case(Odd, INPUT, OUTPUT, CHUNKS)
