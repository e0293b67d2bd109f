"""Event time without a watermark."""

from cases import Case
from pyspark.sql.streaming import StatefulProcessor


class NoWatermark(StatefulProcessor):
    def init(self, handle):
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):
        return iter([])


CASE = Case(
    NoWatermark,
    key=("key",),
    input="key string",
    output="key string",
    time="eventTime",
    chunks=[[("a",)]],
    says=("watermark",),
)
