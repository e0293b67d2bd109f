"""Append mode: only what crosses a threshold is sent."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Thresholds(StatefulProcessor):
    def init(self, handle):
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        before = (self._total.get() or (0,))[0]
        total = before + sum(row.amount for row in rows)
        self._total.update((total,))
        for crossed in range(before // 100 + 1, total // 100 + 1):
            yield Row(meter=key[0], crossed=crossed * 100)


INPUT = "meter long, amount long"
OUTPUT = "meter long, crossed long"
CHUNKS = [
    [(1, 99), (2, 100), (3, 350)],
    [(1, 1), (2, 50), (-4, 10_000_000_000 // 10_000_000)],
    [(1, 5), (2, 49), (3, 49)],
    [(2, 1)],
]
CASE = Case(Thresholds, INPUT, OUTPUT, CHUNKS, key=("meter",), mode="Append", time="None")
