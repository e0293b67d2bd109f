"""The processors of `late_windows`; workers get this file alone."""

from datetime import UTC, datetime

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

MINUTE_S, WINDOW_S = 60, 10


def ending(at: int) -> int:
    return at - at % WINDOW_S + WINDOW_S


class Windows(StatefulProcessor):
    """Gives a user's number of records in each window when it ends."""

    def init(self, handle):
        self._handle = handle
        self._counts = handle.getMapState("counts", "end long", "n long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        for row in rows:
            end = ending(int(row.at.timestamp()))
            (before,) = self._counts.getValue((end,)) if self._counts.containsKey((end,)) else (0,)
            self._counts.updateValue((end,), (before + 1,))
            self._handle.registerTimer(end * 1000)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        end = expiredTimerInfo.getExpiryTimeInMs() // 1000
        (n,) = self._counts.getValue((end,))
        self._counts.removeKey((end,))
        yield Row(end=datetime.fromtimestamp(end, UTC), user=key[0], n=n)


class Minutes(StatefulProcessor):
    """Gives of each minute, when it is over, what `Late.expected` says."""

    def init(self, handle):
        self._handle = handle
        self._seen = handle.getValueState("seen", "most long, counts long, records long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        most, counts, records = self._seen.get() or (0, 0, 0)
        for row in rows:
            most, counts, records = max(most, row.n), counts + 1, records + row.n
        self._seen.update((most, counts, records))
        self._handle.registerTimer((key[0] + 1) * MINUTE_S * 1000)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        most, counts, records = self._seen.get()
        yield Row(minute=key[0], most=most, counts=counts, records=records)
