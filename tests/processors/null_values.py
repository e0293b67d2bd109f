"""Keys that are null, in part or all; values that are null in input, state and output."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Nulls(StatefulProcessor):
    def init(self, handle):
        self._value = handle.getValueState("last", "text string, n int")
        self._list = handle.getListState("all", "n int")
        self._map = handle.getMapState("by_text", "text string", "n int")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.number):
            before = self._value.get()
            self._value.update((row.text, row.n))
            self._list.appendValue((row.n,))
            self._map.updateValue((row.text,), (row.n,))
            yield Row(
                user=key[0],
                shop=key[1],
                number=row.number,
                before=None if before is None else before[0],
                had=before is not None,
                items=[n for (n,) in self._list.get()],
                got=(self._map.getValue((row.text,)) or (-1,))[0],
            )


INPUT = "user string, shop int, number int, text string, n int"
OUTPUT = "user string, shop int, number int, before string, had boolean, items array<int>, got int"
CHUNKS = [
    [(None, None, 0, None, None), ("", None, 1, "a", None), (None, 0, 2, "", 0), ("", 0, 3, None, 1)],
    [(None, None, 4, "a", 5), ("", None, 5, None, None), ("null", None, 6, "x", 1), (None, 0, 7, None, None)],
    [(None, None, 8, "a", None), (None, None, 9, "a", 7), ("", 0, 10, "", 3)],
]
CASE = Case(Nulls, INPUT, OUTPUT, CHUNKS, key=("user", "shop"))
