"""Every method of a map state, by commands in the input."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Maps(StatefulProcessor):
    def init(self, handle):
        self._map = handle.getMapState("stock", "shop string, shelf int", "pieces long")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            place = (row.shop, row.shelf)
            match row.do:
                case "load":
                    self._map.updateValue(place, (row.n,))
                    continue
                case "update":
                    self._map.updateValue(place, (row.n,))
                case "remove":
                    self._map.removeKey(place)
                case "clear":
                    self._map.clear()
            got = self._map.getValue(place) if row.shop else None
            yield Row(
                key=key[0],
                n=row.n,
                got=None if got is None else got[0],
                contains=self._map.containsKey(place) if row.shop else None,
                exists=self._map.exists(),
                keys=sorted(f"{shop}/{shelf}" for shop, shelf in self._map.keys()),  # noqa: SIM118
                values=sorted(pieces for (pieces,) in self._map.values()),
                pairs=sorted(f"{shop}/{shelf}={pieces}" for (shop, shelf), (pieces,) in self._map.iterator()),
            )


INPUT = "key int, n int, do string, shop string, shelf int"
OUTPUT = (
    "key int, n int, got long, contains boolean, exists boolean, keys array<string>, values array<long>, "
    "pairs array<string>"
)
CHUNKS = [
    [(1, 0, "get", "a", 1), (1, 1, "update", "a", 1), (1, 2, "update", "b", 2), (2, 3, "update", "a", 1)],
    [(1, 4, "update", "a", 1), (1, 5, "remove", "b", 2), (1, 6, "remove", "never", 0), (2, 7, "get", "a", 2)],
    [(2, 8, "clear", None, None), (3, 9, "clear", None, None), (1, 10, "update", "a", -1)],
    [(2, 11, "get", "a", 1), (2, 12, "update", "a", 1), (1, 13, "get", "a", 1), (1, 14, "clear", None, None)],
    [(1, 15 + n, "load", f"s{n % 7}", n) for n in range(150)],
    [(1, 200, "get", "s3", 3)],
]
CASE = Case(Maps, INPUT, OUTPUT, CHUNKS)
