"""Ends a query of Spark's real-time mode and the processes of its tasks."""

import contextlib
import os
import signal
import time
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from impls.errors import StateError
from impls.faults import lives, started_ticks
from impls.protocol.session import Hello

_GONE_DEADLINE_S = 10.0
_LOOK_S = 0.001


def stop_query(query: StreamingQuery) -> None:
    """Stops a query of Spark's, which may have ended or failed already."""
    with contextlib.suppress(Py4JError, StreamingQueryException):
        query.stop()


def end_processes(workers: Sequence[Hello]) -> None:
    """Kills the processes of workers and returns when they are gone, so that the state they write is free.

    A process that began at another time than the worker's only has its number, and is left alone.
    """
    for worker in filter(_runs, workers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    end = time.monotonic() + _GONE_DEADLINE_S
    while any(map(_runs, workers)):
        if time.monotonic() > end:
            raise StateError(f"A process of the query did not end in {_GONE_DEADLINE_S:.0f} s after it was killed.")
        time.sleep(_LOOK_S)


def _runs(worker: Hello) -> bool:
    return lives(worker.pid) and started_ticks(worker.pid) == worker.started
