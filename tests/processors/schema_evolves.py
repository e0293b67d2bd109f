"""State variables whose schema changes between runs: fields added, removed, reordered, widened, also in structs."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

VERSIONS = (
    "n int, size float, gone string, inner struct<a: int, b: string>",
    "inner struct<b: string, c: string, a: bigint>, added string, size double, n bigint",
    "n double, size double, added string, inner struct<b: string, a: bigint>, tags array<int>",
)


class Evolving(StatefulProcessor):
    def __init__(self, version):
        self._version = version

    def init(self, handle):
        schema = VERSIONS[self._version]
        self._value = handle.getValueState("value", schema)
        self._list = handle.getListState("list", schema)
        self._map = handle.getMapState("map", "n int", schema)

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            before = self._value.get()
            field = self._map.getValue((row.n % 2,))
            made = self._row(row.n)
            self._value.update(made)
            self._list.appendValue(made)
            self._map.updateValue((row.n % 2,), made)
            yield Row(
                key=key[0],
                n=row.n,
                before=shown(before),
                field=shown(field),
                items=str(sorted(map(shown, self._list.get()))),
            )

    def _row(self, n):
        if self._version == 0:
            return (n, n / 4, f"gone {n}", (n, f"b{n}") if n % 3 else None)
        if self._version == 1:
            return ((f"b{n}", None, n << 40), f"added {n}", n / 3, n << 33)
        return (n / 7, n / 3, None, (None, n << 41), [n, n + 1])


def shown(row):
    """A row with the names of its nested fields."""
    return None if row is None else str([one.asDict() if isinstance(one, Row) else one for one in row])


INPUT = "key string, n int"
OUTPUT = "key string, n int, before string, field string, items string"
CHUNKS = [
    [("a", 1), ("b", 2), ("c", 3)],
    [("a", 4), ("b", 5), ("a", 6), ("b", 7)],
    [("a", 8), ("c", 9)],
    [("a", 10), ("b", 11), ("c", 12), ("c", 13)],
    [("b", 14), ("d", 15)],
]
CASE = Case(
    lambda: Evolving(0),
    INPUT,
    OUTPUT,
    CHUNKS,
    replaced={2: lambda: Evolving(1), 3: lambda: Evolving(2)},
    settings={"spark.sql.streaming.stateStore.encodingFormat": "avro"},
)
