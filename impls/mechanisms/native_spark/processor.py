"""The same count by `transformWithStateInPandas`: what a Spark user writes for an operator in Python."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

_SCHEMA = "key long, count long"


class _Counter(StatefulProcessor):
    """Keeps one long per key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Takes the handle of the key's state."""
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Adds the epoch's records of a key and yields its count."""
        before = self._count.get()
        count = (before[0] if before is not None else 0) + sum(len(part) for part in rows)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "count": [count]})

    def close(self) -> None:
        """Does nothing."""


def count_by_processor(records: DataFrame) -> DataFrame:
    """Returns key and count of the keys that an epoch touched."""
    return (
        records.select("key")
        .groupBy("key")
        .transformWithStateInPandas(
            statefulProcessor=_Counter(), outputStructType=_SCHEMA, outputMode="Update", timeMode="None"
        )
    )
