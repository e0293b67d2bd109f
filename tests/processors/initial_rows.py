"""An initial state: keys with and without rows in the first chunk, and one with two rows of initial state."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class FromInitial(StatefulProcessor):
    def init(self, handle):
        self._total = handle.getValueState("total", "total long")
        self._since = handle.getListState("since", "how string")

    def handleInitialState(self, key, initialState, timerValues):
        self._total.update(((self._total.get() or (0,))[0] + initialState.total,))
        self._since.appendValue(("initial",))

    def handleInputRows(self, key, rows, timerValues):
        before = self._total.get()
        total = (before or (0,))[0] + sum(row.n for row in rows)
        self._total.update((total,))
        self._since.appendValue(("rows",))
        yield Row(key=key[0], total=total, known=before is not None)


INPUT = "key string, n long"
OUTPUT = "key string, total long, known boolean"
CHUNKS = [[("a", 1), ("d", 4), ("a", 2)], [("b", 5), ("c", 6)], [("e", 7), ("a", 8)]]
CASE = Case(
    FromInitial,
    INPUT,
    OUTPUT,
    CHUNKS,
    initial=("key string, total long", [("a", 100), ("b", 200), ("c", 300), ("c", 1)]),
)
