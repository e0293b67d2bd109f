"""An initial state that comes as frames."""

import pandas as pd
from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class Opening(StatefulProcessor):
    def init(self, handle):
        self._balance = handle.getValueState("balance", "cents long")
        self._owners = handle.getListState("owners", "name string")

    def handleInitialState(self, key, initialState, timerValues):
        self._balance.update((int(initialState["cents"].sum()),))
        self._owners.appendList([(name,) for name in sorted(initialState["owner"])])

    def handleInputRows(self, key, rows, timerValues):
        cents = (self._balance.get() or (0,))[0]
        for frame in rows:
            cents += int(frame["cents"].sum())
        self._balance.update((cents,))
        owners = [name for (name,) in self._owners.get()]
        yield pd.DataFrame({"bank": [key[0]], "account": [key[1]], "cents": [cents], "owners": [owners]})


INPUT = "bank string, account int, cents long"
OUTPUT = "bank string, account int, cents long, owners array<string>"
CHUNKS = [[("x", 1, 5), ("x", 2, 1), ("x", 1, 6)], [("y", 1, -7), ("x", 2, 1)], [("x", 1, 0)]]
CASE = Case(
    Opening,
    INPUT,
    OUTPUT,
    CHUNKS,
    key=("bank", "account"),
    initial=("bank string, account int, cents long, owner string", [("x", 1, 100, "ann"), ("y", 1, 7, "bob")]),
    pandas=True,
)
