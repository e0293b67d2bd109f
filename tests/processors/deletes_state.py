"""A state variable that the next version of a processor deletes; a query that is stopped in between."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class First(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count long")
        self._notes = handle.getListState("notes", "note string")

    def handleInputRows(self, key, rows, timerValues):
        count = (self._count.get() or (0,))[0]
        for row in rows:
            count += 1
            self._notes.appendValue((row.note,))
        self._count.update((count,))
        yield Row(key=key[0], count=count, notes=len(list(self._notes.get())))


class Second(StatefulProcessor):
    def init(self, handle):
        handle.deleteIfExists("notes")
        handle.deleteIfExists("never there")
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key, rows, timerValues):
        count = (self._count.get() or (0,))[0] + len(list(rows))
        self._count.update((count,))
        yield Row(key=key[0], count=count, notes=None)


CASE = Case(
    First,
    key=("key",),
    input="key string, note string",
    output="key string, count long, notes int",
    chunks=[
        [("a", "one"), ("b", "two"), ("a", "three")],
        [("a", "four")],
        [("a", "five"), ("c", "six")],
        [("b", "seven")],
    ],
    replaced={2: Second},
)
