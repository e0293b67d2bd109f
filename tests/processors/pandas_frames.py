"""Several frames for one key, empty ones, columns in another order; dates, decimals, lists and bytes in frames."""

import pandas as pd
from cases import Case, at
from pyspark.sql.streaming import StatefulProcessor

COLUMNS = "n int, day date, moment timestamp, worth decimal(8,2), raw binary, list array<string>, yes boolean"


class Frames(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getMapState("seen", "n int", "day date, worth decimal(8,2), raw binary, list array<string>")
        self._moments = handle.getListState("moments", "moment timestamp")

    def handleInputRows(self, key, rows, timerValues):
        for frame in rows:
            ordered = frame.sort_values("n")
            for row in ordered.itertuples():
                items = None if row.list is None else list(row.list)  # an array of NumPy's is no value of state
                self._seen.updateValue((row.n,), (row.day, row.worth, row.raw, items))
                if not pd.isna(row.moment):
                    self._moments.appendValue((row.moment.to_pydatetime(),))
            yield ordered[["yes", "raw", "list", "worth", "moment", "day", "n"]].assign(key=key[0], times=1)
            yield ordered.head(0).assign(times=0)
            yield pd.DataFrame({
                "key": key[0], "times": [len(list(self._moments.get()))], "n": [len(list(self._seen.keys()))],
                "day": [None], "moment": [pd.NaT], "worth": [None], "raw": [None], "list": [None], "yes": [None],
            })  # fmt: skip


def row(key, n, moment, text):
    return (key, n, "2026-02-03", moment, "12.50", text.encode(), [text, "", None], n % 2 == 0)


INPUT = f"key string, {COLUMNS}"
OUTPUT = f"key string, times int, {COLUMNS}"
CHUNKS = [
    [row("a", 1, at(0), "one"), row("b", 2, at(1.5), "two"), row("a", 0, None, "")],
    [row("a", 1, at(2), "again"), ("c", 5, None, None, None, None, None, None)],
    [row("b", 7, at(3.000001), "ü")],
]
CASE = Case(Frames, INPUT, OUTPUT, CHUNKS, pandas=True)
