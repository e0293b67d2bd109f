"""A state machine: orders that are created, paid, sent, or cancelled; what does not fit is told and changes nothing."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

NEXT = {
    (None, "create"): "created",
    ("created", "pay"): "paid",
    ("created", "cancel"): None,
    ("paid", "send"): "sent",
    ("paid", "cancel"): "refund",
    ("refund", "pay back"): None,
    ("sent", "arrive"): None,
}


class Orders(StatefulProcessor):
    def init(self, handle):
        self._state = handle.getValueState("state", "state string, since int")
        self._path = handle.getListState("path", "event string")

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            state = self._state.get()[0] if self._state.exists() else None
            if (state, row.event) not in NEXT:
                yield Row(order=key[0], n=row.n, state=state, problem=f"{row.event} after {state}", path=None)
                continue
            self._path.appendValue((row.event,))
            following = NEXT[state, row.event]
            if following is not None:
                self._state.update((following, row.n))
                continue
            yield Row(order=key[0], n=row.n, state="ended", problem=None, path=[e for (e,) in self._path.get()])
            self._state.clear()
            self._path.clear()


INPUT = "order int, n int, event string"
OUTPUT = "order int, n int, state string, problem string, path array<string>"
CHUNKS = [
    [(1, 0, "create"), (2, 1, "pay"), (1, 2, "pay"), (3, 3, "create")],
    [(1, 4, "send"), (3, 5, "cancel"), (2, 6, "create"), (2, 7, "create")],
    [(1, 8, "arrive"), (3, 9, "create"), (2, 10, "pay"), (2, 11, "cancel")],
    [(1, 12, "pay"), (2, 13, "pay back"), (3, 14, "pay"), (1, 15, "create")],
]
CASE = Case(Orders, INPUT, OUTPUT, CHUNKS, key=("order",), mode="append")
