"""A time to live that no date is far enough for: the sum of it and the time wraps, so Spark's state expires at once."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

ENDLESS = 2**63 - 1


class Endless(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "n long", ENDLESS)
        self._all = handle.getListState("all", "n long", ENDLESS)
        self._by = handle.getMapState("by", "n long", "n long", ENDLESS)

    def handleInputRows(self, key, rows, timerValues):
        number = sum(1 for _ in rows)
        before = self._count.get()[0] if self._count.exists() else 0
        self._count.update((before + number,))
        self._all.appendValue((number,))
        self._by.updateValue((number,), (before,))
        yield Row(key=key[0], n=before, items=len(list(self._all.get())), fields=len(list(self._by.iterator())))


INPUT = "key long, n long"
OUTPUT = "key long, n long, items long, fields long"
CHUNKS = [[(1, 0), (2, 1)], [(1, 2)], [(1, 3), (2, 4)]]
CASE = Case(Endless, INPUT, OUTPUT, CHUNKS, time="processingTime")
