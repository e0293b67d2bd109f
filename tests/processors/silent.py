"""Several state variables and no output at all; a key is cleared and seen again."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class Silent(StatefulProcessor):
    def init(self, handle):
        self._last = handle.getValueState("last", "n int")
        self._all = handle.getListState("all", "n int")
        self._names = handle.getMapState("names", "name string", "n int")
        self._other = handle.getValueState("other", "n int, name string")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            if row.name is None:
                for state in (self._last, self._all, self._names, self._other):
                    state.clear()
                continue
            self._last.update((row.n,))
            self._all.appendValue((row.n,))
            self._names.updateValue((row.name,), (row.n,))
            if not self._other.exists():
                self._other.update((row.n, row.name))
        return iter([])


CHUNKS = [
    [("a", 0, "x"), ("b", 1, "x"), ("a", 2, "y"), ("c", 3, "z")],
    [("a", 4, None), ("b", 5, "x"), ("c", 6, None)],
    [("a", 7, "w"), ("b", 8, None), ("b", 9, "v")],
]
CASE = Case(Silent, input="key string, n int, name string", output="key string", chunks=CHUNKS)
