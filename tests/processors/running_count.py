"""A running count, as the first example of Spark's guide."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class RunningCount(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key, rows, timerValues):
        before = self._count.get()
        count = (before[0] if before is not None else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(word=key[0], count=count)

    def close(self):
        pass


CHUNKS = [
    [("a",), ("b",), ("a",), ("c",)],
    [("b",)],
    [(f"w{n % 37}",) for n in range(100)] + [("a",)],
    [("a",), ("w5",), ("w36",)],
]
CASE = Case(RunningCount, key=("word",), input="word string", output="word string, count long", chunks=CHUNKS)
