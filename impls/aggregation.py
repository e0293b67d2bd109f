"""`aggregate`: Spark's `groupBy(keys).agg(...)` in update mode, with a handle to rescale it while it runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from impls.api import stream
from impls.driver.handle import StreamHandle
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.aggregates.types import WINDOW
from impls.operators.aggregates.windows import END, EVENT, WindowAggregate
from impls.operators.base import Operator
from impls.processor.keys import columns_sql
from impls.protocol.eventtime import EventTime
from impls.spark.watermark import delay_ms, event_time_sql, with_watermark

__all__ = ["GROUPING_KEY", "aggregate", "with_windows"]

GROUPING_KEY = "grouping_key"  # the column by which records go to bins


def aggregate(df: DataFrame, keys: Sequence[str], values: Mapping[str, str], **options: Any) -> StreamHandle:
    """Starts `df.groupBy(keys).agg(values)` in update mode and returns its handle.

    A result is, per key and epoch, the key's row after the epoch as JSON; its Kafka key is the grouping key's bytes
    (`impls.processor.keys`). One of the keys may be a window, a column that `pyspark.sql.functions.window` has made; if
    it is one of a column with a watermark, a key is forgotten when the watermark has passed its window.

    Args:
        df: a streaming DataFrame, see `impls.stream`.
        keys: the columns of the key, of any of the types in `impls.operators.aggregates.types`.
        values: name of each result and the aggregate: count(*), or count, sum, min, max or avg of a column.
        options: what `impls.stream` takes besides: results, state_dir, checkpoint, workers and so on.

    Raises:
        UsageError: as `impls.stream`; a column is missing, or an aggregate or a type is unknown; there are two windows,
            or the column with the watermark was left out.
    """
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    if missing := [key for key in keys if key not in types]:
        raise UsageError(f"The input has no column {missing[0]!r}; it has {', '.join(df.columns)}.")
    schema = StructType([df.schema[key] for key in keys])
    keyed = df.withColumn(GROUPING_KEY, F.expr(columns_sql(schema, keys)))
    aggregates = Aggregate({key: types[key] for key in keys}, values, types)
    windows = [field for field in schema.fields if types[field.name] == WINDOW]
    if len(windows) > 1:
        raise UsageError(f"The key has {len(windows)} windows: Spark allows one.")
    operator: Operator = aggregates
    if windows and with_watermark(StructType(windows)):
        keyed, delay_ms = _timed(keyed, windows[0].name)
        operator = with_windows(aggregates, delay_ms)
    return stream(keyed, key=GROUPING_KEY, operator=operator, **options)


def with_windows(aggregates: Aggregate, delay: int) -> WindowAggregate:
    """Returns aggregates by windows under Spark's watermark with a delay, ms."""
    return WindowAggregate(aggregates, EventTime.of_spark(EVENT, delay))


def _timed(df: DataFrame, window: str) -> tuple[DataFrame, int]:
    """Adds the event time and the end of the window, both in µs, and returns the watermark's delay, ms, with it."""
    marked = [field for field in with_watermark(df.schema) if field.dataType.simpleString() == "timestamp"]
    if len(marked) != 1:
        raise UsageError(f"Keep the one column with the watermark beside the window; there are {len(marked)}.")
    timed = df.withColumn(EVENT, F.expr(event_time_sql(marked[0].name))).withColumn(
        END, F.unix_micros(F.col(f"`{window}`.end"))
    )
    return timed, delay_ms(marked[0])
