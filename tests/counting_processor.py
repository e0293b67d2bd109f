"""A StatefulProcessor that counts, and gives the count again 50 ms of processing time later."""

from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import Row


class SteppingCount(StatefulProcessor):
    def init(self, handle):
        self._handle = handle
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        (n,) = self._count.get() or (0,)
        n += sum(1 for _ in rows)
        self._count.update((n,))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 50)
        yield Row(key=key[0], n=n, timer=False)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        yield Row(key=key[0], n=self._count.get()[0], timer=True)
