"""Several rows for a row, none for another; columns in another order than the schema's, and one left out."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Words(StatefulProcessor):
    def init(self, handle):
        self._counts = handle.getMapState("counts", "word string", "count int")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            for place, word in enumerate((row.line or "").split()):
                count = (self._counts.getValue((word,)) or (0,))[0] + 1
                self._counts.updateValue((word,), (count,))
                if word == "short":
                    yield Row(word=word, n=row.n)
                else:
                    yield Row(extra="of no column", count=count, place=place, word=word, n=row.n, book=key[0])


INPUT = "book string, n int, line string"
OUTPUT = "book string, n int, word string, place int, count int"
CHUNKS = [
    [("one", 0, "to be or not to be"), ("two", 1, ""), ("one", 2, None), ("two", 3, "short")],
    [("two", 4, "be"), ("one", 5, " ".join(["again"] * 200)), ("three", 6, "   ")],
    [("three", 7, "to short to"), ("one", 8, "be")],
]
CASE = Case(Words, INPUT, OUTPUT, CHUNKS, key=("book",))
