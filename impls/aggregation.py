"""`aggregate`: Spark's `groupBy(keys).agg(...)` in update or append mode, with a handle to rescale it while it runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from impls.api import stream
from impls.driver.handle import StreamHandle
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.aggregates.measures import function_and_column
from impls.operators.aggregates.operator import END, EVENT, WindowAggregate
from impls.operators.aggregates.rows import WINDOW, key_type
from impls.operators.base import Operator, quoted
from impls.processor.keys import KeyCodec, columns_sql
from impls.processor.rows import plain
from impls.processor.start import OUTPUT_MODES, with_micros
from impls.protocol.eventtime import EventTime
from impls.spark.columnnames import case_sensitive, column_named
from impls.spark.source import delay_ms, event_time_sql, with_watermark

GROUPING_KEY = "grouping_key"  # the column by which records go to bins


def aggregate(
    df: DataFrame, keys: Sequence[str], values: Mapping[str, str], *, output_mode: str = "update", **options: Any
) -> StreamHandle:
    """Starts `df.groupBy(keys).agg(values)` and returns its handle.

    In update mode a result is, per key and epoch, the key's row after the epoch as JSON; its Kafka key is the grouping
    key's bytes (`impls.processor.keys`). One of the keys may be a window, a column that `pyspark.sql.functions.window`
    has made; if it is one of a column with a watermark, a key is forgotten when the watermark has passed its window. In
    append mode a result is the row of a key that is forgotten, so there is one for each key.

    Args:
        df: a streaming DataFrame, see `impls.stream`.
        keys: the columns of the key, of any of the types in `impls.operators.aggregates.rows`.
        values: name of each result and the aggregate: count(*), or count, sum, min, max or avg of a column.
        output_mode: "update" or "append".
        options: what `impls.stream` takes besides: results, state_dir, checkpoint, workers and so on.

    Raises:
        UsageError: as `impls.stream`; a column is missing, or an aggregate or a type is unknown; there are two windows,
            or the column with the watermark was left out; append mode without such a window.
    """
    if output_mode not in OUTPUT_MODES:
        raise UsageError(f"The output mode {output_mode!r} is unknown: use {' or '.join(OUTPUT_MODES)}.")
    if not keys:
        raise UsageError("Name a column to group by: without one there is one row of state, which cannot be rescaled.")
    if len(set(map(str.lower, keys))) < len(keys) and not case_sensitive(df):
        raise UsageError(f"A column is named twice among the keys {', '.join(keys)}: name it once.")
    read = [column for _, column in map(function_and_column, values.values()) if column]
    for name in (*read, *keys):  # as Spark: a result has the name that was asked for
        df = _renamed(df, name)
    values = {name: _with_column(df, text) for name, text in values.items()}
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    for key in [key for key in keys if types[key] in {"float", "double"}]:  # as Spark: -0.0 is 0.0
        df = df.withColumn(key, (F.col(quoted(key)) + 0.0).cast(types[key]))
    schema = StructType([df.schema[key] for key in keys])
    keyed = df.withColumn(GROUPING_KEY, F.expr(columns_sql(schema, keys)))
    setting = df.sparkSession.conf.get
    zone, ansi = str(setting("spark.sql.session.timeZone")), str(setting("spark.sql.ansi.enabled")).lower() == "true"
    micros = with_micros(options.get("results"))
    aggregates = Aggregate({key: types[key] for key in keys}, values, types, zone=zone, micros=micros, ansi=ansi)
    windows = [field for field in schema.fields if types[field.name] == WINDOW]
    if len(windows) > 1:
        raise UsageError(f"The key has {len(windows)} windows: Spark allows one.")
    operator: Operator = aggregates
    if windows and with_watermark(StructType(windows)):
        keyed, delay_ms = _timed(keyed, windows[0].name)
        operator = with_windows(aggregates, delay_ms, schema if output_mode == "append" else None)
    elif output_mode == "append":
        raise UsageError(
            "In append mode a row is sent when the watermark has passed its window: add a window of a column with a "
            'watermark to the keys, or use output_mode="update".'
        )
    return stream(keyed, key=GROUPING_KEY, operator=operator, **options)


def _renamed(df: DataFrame, key: str) -> DataFrame:
    name = column_named(df, key)
    return df if name == key else df.withColumnRenamed(name, key)


def _with_column(df: DataFrame, text: str) -> str:
    """Returns an aggregate with its column's own name; raises UsageError for one that the input does not have."""
    function, column = function_and_column(text)
    return f"{function}({quoted(column_named(df, column)) if column else '*'})"


def with_windows(aggregates: Aggregate, delay: int, appended: StructType | None = None) -> WindowAggregate:
    """Returns aggregates by windows under Spark's watermark with a delay, ms.

    `appended` is the type of the grouping key in append mode, None in update mode.
    """
    columns = None if appended is None else KeyColumns(appended)
    return WindowAggregate(aggregates, EventTime.of_spark(EVENT, delay), columns)


class KeyColumns:
    """The columns of grouping keys, of the types that `Aggregate` has."""

    def __init__(self, schema: StructType):
        self._schema = schema
        self._codec: KeyCodec | None = None  # it has functions, and does not travel

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "_codec": None}

    def __call__(self, keys: list[bytes]) -> pa.Table:
        """Returns a table with a row for each key."""
        if self._codec is None:
            self._codec = KeyCodec(plain(self._schema))  # of a time the number
        rows = [self._codec.decode(key) for key in keys]
        columns = {}
        for place, field in enumerate(self._schema.fields):
            kind = key_type(field.dataType.simpleString())
            values = [row[place] for row in rows]
            if isinstance(field.dataType, StructType):
                values = [None if value is None else value.asDict() for value in values]
            columns[field.name] = _cast(values, kind)
        return pa.table(columns)


def _cast(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.array(values, pa.struct([(part.name, pa.int64()) for part in kind])).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


def _timed(df: DataFrame, window: str) -> tuple[DataFrame, int]:
    """Adds the event time and the end of the window, both in µs, and returns the watermark's delay, ms, with it."""
    marked = [field for field in with_watermark(df.schema) if field.dataType.simpleString() == "timestamp"]
    if len(marked) != 1:
        raise UsageError(f"Keep the one column with the watermark beside the window; there are {len(marked)}.")
    timed = df.withColumn(EVENT, F.expr(event_time_sql(marked[0].name))).withColumn(
        END, F.unix_micros(F.col(f"{quoted(window)}.end"))
    )
    return timed, delay_ms(marked[0])
