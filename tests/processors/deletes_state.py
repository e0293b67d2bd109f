"""A state variable that the next version of a processor deletes; a query that is stopped in between."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Noted(StatefulProcessor):
    def __init__(self, version):
        self._version = version

    def init(self, handle):
        self._count = handle.getValueState("count", "count long")
        if self._version == 1:
            self._notes = handle.getListState("notes", "note string")
        else:
            handle.deleteIfExists("notes")
            handle.deleteIfExists("never there")

    def handleInputRows(self, key, rows, timerValues):
        count = (self._count.get() or (0,))[0]
        for row in rows:
            count += 1
            if self._version == 1:
                self._notes.appendValue((row.note,))
        self._count.update((count,))
        yield Row(key=key[0], count=count, notes=len(list(self._notes.get())) if self._version == 1 else None)


INPUT = "key string, note string"
OUTPUT = "key string, count long, notes int"
CHUNKS = [
    [("a", "one"), ("b", "two"), ("a", "three")],
    [("a", "four")],
    [("a", "five"), ("c", "six")],
    [("b", "seven")],
]
CASE = Case(lambda: Noted(1), INPUT, OUTPUT, CHUNKS, replaced={2: lambda: Noted(2)})
