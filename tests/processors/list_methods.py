"""Every method of a list state, by commands in the input."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Lists(StatefulProcessor):
    def init(self, handle):
        self._list = handle.getListState("things", "name string, n int")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            things = [(name, row.n) for name in (row.names or [])]
            match row.do:
                case "appendValue":
                    self._list.appendValue(things[0])
                case "appendList":
                    self._list.appendList(things)
                case "put":
                    self._list.put(things)
                case "clear":
                    self._list.clear()
            held = [f"{name}{n}" for name, n in self._list.get()]
            yield Row(key=key[0], n=row.n, held=held, exists=self._list.exists())


INPUT = "key string, n int, do string, names array<string>"
OUTPUT = "key string, n int, held array<string>, exists boolean"
CHUNKS = [
    [("k", 0, "get", None), ("k", 1, "appendValue", ["a"]), ("l", 2, "put", ["x", "y"]), ("k", 3, "clear", None)],
    [("k", 4, "appendList", ["b", "a", "b"]), ("k", 5, "appendValue", ["c"]), ("l", 6, "appendValue", ["a"])],
    [("k", 7, "put", ["z"]), ("l", 8, "clear", None), ("m", 9, "clear", None)],
    [("k", 10, "get", None), ("l", 11, "get", None), ("l", 12, "appendList", ["q"]), ("k", 13, "put", ["1", "0"])],
    [("n", 14, "appendList", [f"item {i} " for i in range(250)]), ("k", 15, "appendList", ["t"])],
    [("n", 16, "appendValue", ["last"])],
]
CASE = Case(Lists, INPUT, OUTPUT, CHUNKS)
