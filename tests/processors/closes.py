"""Each object of a processor is closed behind all its calls; it writes how many there were to a file of a folder."""

import os
from pathlib import Path

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Closes(StatefulProcessor):
    def __init__(self, folder=""):
        self._folder = folder

    def init(self, handle):
        self._calls = []
        self._count = handle.getValueState("count", "count int")

    def handleInputRows(self, key, rows, timerValues):
        self._calls.append("rows")
        count = (self._count.get() or (0,))[0] + len(list(rows))
        self._count.update((count,))
        yield Row(key=key[0], count=count)

    def close(self):
        if self._folder:
            with (Path(self._folder) / str(os.getpid())).open("a") as file:
                file.write(f"{len(self._calls)}\n")
        del self._calls  # a call behind the close fails


INPUT = "key int"
OUTPUT = "key int, count int"
CHUNKS = [[(n % 20,) for n in range(50)], [(3,)], [(n % 7,) for n in range(10)]]
CASE = Case(Closes, INPUT, OUTPUT, CHUNKS)
