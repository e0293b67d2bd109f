"""The Structured Streaming query that calls the driver once per epoch."""

from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.driver.driver import QueryEnded, StopNeeded
from impls.errors import InvalidPlanError, StateError, UsageError

__all__ = ["runner"]

_OURS = (QueryEnded, StopNeeded, InvalidPlanError, UsageError, StateError)


def runner(
    writer: DataStreamWriter,
) -> Callable[[Callable[[Any, int], None], Callable[[], None]], Exception | None]:
    """Returns a function that runs a query from start to end, see `impls.driver.handle.RunQuery`."""

    def run(epoch_of: Callable[[Any, int], None], started: Callable[[], None]) -> Exception | None:
        signals: list[Exception] = []

        def epoch(batch: Any, number: int) -> None:
            try:
                epoch_of(batch, number)
            except _OURS as signal:  # Spark hands on the text of an exception only
                signals.append(signal)
                raise

        query = writer.foreachBatch(epoch).start()
        started()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not signals:
                raise StateError(_cause(error)) from error
        return signals[-1] if signals else None

    return run


def _cause(error: StreamingQueryException) -> str:
    """Returns the line of a failed query's message that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "StateError" in line or "Error:" in line or "Exception:" in line]
    return f"The query failed: {(named or lines or ['no message'])[-1][:500]}"
