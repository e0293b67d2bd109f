"""The running count with frames: what `transformWithStateInPandas` gives and takes."""

import pandas as pd
from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class PandasCount(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "count long, total double")

    def handleInputRows(self, key, rows, timerValues):
        count, total = self._count.get() or (0, 0.0)
        kinds = None
        for frame in rows:
            count += len(frame)
            total += frame["price"].sum()
            kinds = ",".join(f"{name}:{kind}" for name, kind in frame.dtypes.items())
        self._count.update((count, total))
        yield pd.DataFrame({"word": [key[0]], "count": [count], "total": [total], "kinds": [kinds]})


INPUT = "word string, price double, n int, at timestamp"
OUTPUT = "word string, count long, total double, kinds string"
CHUNKS = [
    [("a", 1.5, 1, None), ("b", 0.25, 2, None), ("a", 2.0, 3, None)],
    [("b", 1.0, None, None), ("b", None, 4, None)],
    [("a", 1e6, 5, "2026-01-01T00:00:00Z"), ("c", 0.0, 6, "2026-01-01T00:00:01.5Z")],
]
CASE = Case(PandasCount, INPUT, OUTPUT, CHUNKS, key=("word",), pandas=True)
