"""Keys of floating point: NaN, infinity, zero; Spark's operator keeps -0.0 apart from 0.0, which are one key here."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Floats(StatefulProcessor):
    def init(self, handle):
        self._sum = handle.getValueState("sum", "sum double, times int")

    def handleInputRows(self, key, rows, timerValues):
        total, times = self._sum.get() or (0.0, 0)
        for row in rows:
            total, times = total + row.x, times + 1
        self._sum.update((total, times))
        yield Row(key=str(key[0]), sum=total, times=times)


CHUNKS = [
    [(0.0,), (1.5,), (float("nan"),), (float("inf"),)],
    [(float("nan"),), (float("-inf"),), (float("inf"),), (1e308,)],
    [(1e308,), (1.5,), (5e-324,)],
]
CASE = Case(Floats, key=("x",), input="x double", output="key string, sum double, times int", chunks=CHUNKS)
