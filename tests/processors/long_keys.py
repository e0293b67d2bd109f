"""Keys of thousands of characters that differ in the last one; with timers, lists, and maps whose keys are long too."""

from cases import at, event_timed
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Long(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._list = handle.getListState("a list with a name that is long for a state variable, but may be", "n int")
        self._map = handle.getMapState("map", "part string", "n int")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            self._list.appendValue((row.n,))
            self._map.updateValue((key[0] + "/" + str(row.n % 2),), (row.n,))
            self._handle.registerTimer(row.due)
        parts = sorted(f"{len(part)}{part[-3:]}={n}" for (part,), (n,) in self._map.iterator())
        yield Row(key=key[0][-5:], length=len(key[0]), items=[n for (n,) in self._list.get()], parts=parts)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(key=key[0][-5:], length=len(key[0]), items=[len(list(self._list.get()))], parts=None)
        self._list.clear()


def due(seconds):
    return int(at(seconds).timestamp() * 1000)


A, B, C = "ä" * 3000 + "a", "ä" * 3000 + "b", "x" * 500
INPUT = "key string, n int, at timestamp, due long"
OUTPUT = "key string, length int, items array<int>, parts array<string>"
CHUNKS = [
    [(A, 0, at(0), due(10)), (B, 1, at(0), due(20)), (C, 2, at(1), due(10)), (A, 3, at(2), due(60))],
    [(A, 4, at(15), due(30)), ("short", 5, at(15), due(20))],
    [(B, 6, at(40), due(50))],
    [("short", 7, at(100), due(200))],
]
CASE = event_timed(Long, INPUT, OUTPUT, CHUNKS, delay="1 second")
