"""The processor that both sides run, unchanged: a running count per key."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

__all__ = ["OUTPUT", "Counter"]

OUTPUT = "key long, count long, scheduled_us long"


class Counter(StatefulProcessor):
    """Keeps a count per key, and sends it with the time of each record, so that every record's latency is known."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Takes the handle of the key's state."""
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Counts the rows of a key."""
        before = self._count.get()
        count = before[0] if before is not None else 0
        for row in rows:
            count += 1
            yield Row(key=key[0], count=count, scheduled_us=row.scheduled_us)
        self._count.update((count,))

    def close(self) -> None:
        """Does nothing."""
