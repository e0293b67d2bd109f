"""A processor that takes only the first row of each key and leaves the others unread."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class FirstRow(StatefulProcessor):
    def init(self, handle):
        self._calls = handle.getValueState("calls", "calls int")

    def handleInputRows(self, key, rows, timerValues):
        calls = (self._calls.get() or (0,))[0] + 1
        self._calls.update((calls,))
        if key[0] % 3 == 0:
            return
        first = next(rows)
        yield Row(key=key[0], calls=calls, text=first.text)


CHUNKS = [
    [(n % 9, f"row of {n % 9}") for n in range(60)],
    [(n % 5, f"row of {n % 5}") for n in range(20)] + [(11, "alone")],
    [(3, "unread"), (11, "read")],
]
CASE = Case(FirstRow, input="key int, text string", output="key int, calls int, text string", chunks=CHUNKS)
