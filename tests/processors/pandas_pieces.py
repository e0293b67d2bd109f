"""Frames of a key as long as the session's bounds on records and bytes allow."""

import pandas as pd
from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class Pieces(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getValueState("seen", "rows long")

    def handleInputRows(self, key, rows, timerValues):
        lengths = [len(frame) for frame in rows]
        (before,) = self._seen.get() or (0,)
        self._seen.update((before + sum(lengths),))
        yield pd.DataFrame({"word": [key[0]], "lengths": [",".join(map(str, lengths))]})


INPUT = "word string, text string"
OUTPUT = "word string, lengths string"
CHUNKS = [[("long", "x" * 700)] * 20, [("short", "y")] * 16]
CASE = Case(
    Pieces,
    INPUT,
    OUTPUT,
    CHUNKS,
    key=("word",),
    pandas=True,
    settings={"spark.sql.execution.arrow.maxRecordsPerBatch": "7", "spark.sql.execution.arrow.maxBytesPerBatch": "4kb"},
)
