"""Event time without a watermark: by Spark's own operator no timer ever goes off."""

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
    only_here=True,
)
