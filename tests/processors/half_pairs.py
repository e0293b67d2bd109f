"""Text with half a surrogate pair, as json.loads makes it of a cut emoji, in state: Spark fails in output."""

import json

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Halves(StatefulProcessor):
    def init(self, handle):
        self._value = handle.getValueState("value", "text string, n int")
        self._by = handle.getMapState("by", "text string", "text string")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            text = json.loads(row.raw)
            self._value.update((text, row.n))
            self._by.updateValue((text,), (text,))
            kept = [field[0] for field, _ in self._by.iterator()]
            yield Row(key=key[0], n=row.n, back=ascii(self._value.get()[0]), kept=sorted(map(ascii, kept)))


INPUT = "key string, n int, raw string"
OUTPUT = "key string, n int, back string, kept array<string>"
CHUNKS = [
    [("a", 0, r'"hi \ud83d"'), ("a", 1, r'"\ude00 there"'), ("b", 2, r'"whole \ud83d\ude00"')],
    [("a", 3, r'"\ud83d\ud83d"'), ("b", 4, '"plain"')],
]
CASE = Case(Halves, INPUT, OUTPUT, CHUNKS)
