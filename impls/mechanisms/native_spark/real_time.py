"""Spark's own stateful count in its real-time mode, watched by the offsets of its topics.

Spark tells of a query in this mode when a batch ends, minutes apart. So how far it is, the broker is asked: there is
a result for every record. After a restart what was taken in since the last batch's end comes again, and so do results.

The first batch is a micro-batch: it makes the state, and writes the state's schema, without which Spark refuses to
repartition the state of a query in real-time mode.
"""

import json
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from impls.errors import StateError
from impls.mechanisms.native_spark.intervals import Ends, Intervals, state_bytes
from impls.mechanisms.native_spark.query import NativeQuery

NATIVE_REAL_TIME_SETTINGS = {
    "spark.sql.streaming.realTimeMode.minBatchDuration": "500ms",  # Spark's bound is 5 s
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",  # a record waits for others so long; 50 otherwise
    "spark.shuffle.streaming.checksum.enabled": "false",  # between tasks of one process is no network to distrust
}
_FIRST_DEADLINE_S = 600


class NativeRealTimeQuery(NativeQuery):
    """See `NativeQuery`; its epochs are intervals of this class, of a quarter of a second each.

    Args:
        topic: the input topic.
        batch: how long a batch of Spark's lasts, as in "60 seconds".
    """

    def __init__(self, *arguments: Any, topic: str, batch: str, **named: Any):
        self._topic, self._batch, self._bytes = topic, batch, 0
        self._ends: Ends | None = None
        self._intervals = Intervals(named["on_epoch"])
        self._before, self._base = 0, 0  # records taken in before the last start, and results there were then
        super().__init__(*arguments, **named)

    def _prepare(self) -> None:
        """Runs the first batch, which takes in what makes the state."""
        self._ends = Ends(self._output.bootstrap, self._topic, self._output.topic)
        first = self._writer().trigger(availableNow=True).start()
        if not first.awaitTermination(_FIRST_DEADLINE_S):
            raise StateError(f"the first batch took more than {_FIRST_DEADLINE_S} s")
        self._tell(0, 0, moved=False)

    def _start(self) -> StreamingQuery:
        assert self._ends is not None, "_prepare comes first"
        with self._lock:
            self._before, (_, self._base) = self._taken_in(), self._ends.now()
            self._on_event("query_start", {"partitions": self._workers})
            writer: Any = self._writer()
            query: StreamingQuery = writer.trigger(realTime=self._batch).start()
            return query

    def _look(self, query: StreamingQuery) -> None:
        """Tells of an interval when it is time."""
        assert self._ends is not None, "_prepare comes first"
        self._idle += 1
        if not self._intervals.due():
            return
        arrived, results = self._ends.now()
        done = min(self._before + max(0, results - self._base), arrived)
        moved = self._restarted is not None and results > self._base
        self._tell(arrived, max(done, self._intervals.done), moved=moved)

    def _tell(self, arrived: int, done: int, *, moved: bool) -> None:
        """Tells of the interval that ends now: how many records have arrived in all, and how many are done."""
        ended = None
        with self._lock:
            self._last_epoch = self._intervals.number + 1
            if moved:
                ended, self._restarted = self._restarted, None
        what = (self._bins, self._bytes) if moved and self._native.repartitions else (0, 0)
        self._intervals.tell(arrived, done, workers=self._workers, moved=what, ended=ended)

    def _progress(self, epoch: int, begin_us: int, progress: Any) -> None:
        self._bytes = state_bytes(progress)

    def _taken_in(self) -> int:
        """Returns how many records of the input the batches that are committed have taken in."""
        number = self._committed()
        return 0 if number < 0 else _offsets(self._checkpoint / "offsets" / str(number), self._topic)


def _offsets(file: Path, topic: str) -> int:
    """Returns the records of a topic up to the end of the batch whose offsets a file of Spark's log has."""
    for line in file.read_text().splitlines():
        found = json.loads(line) if line.startswith("{") else {}
        if isinstance(ends := found.get(topic), dict):
            return sum(int(end) for end in ends.values())
    return 0
