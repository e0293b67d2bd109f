"""`transform_with_state`: a StatefulProcessor of Spark's users on this runtime, with the arguments of Spark's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState as Phase
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from impls.api import stream
from impls.driver.handle import StreamHandle
from impls.driver.preparing import NOTHING
from impls.errors import UsageError
from impls.operators.base import quoted
from impls.processor.handle import Handle, TimeMode
from impls.processor.initial import InitialFiles, job_of
from impls.processor.kept import check_kept
from impls.processor.keys import columns_sql
from impls.processor.operator import EVENT_TIME, InitialState, operator_of
from impls.processor.output import MAX_BYTES, NO_BOUND, json_of, pandas_settings
from impls.processor.program import Program
from impls.processor.scope import Scope
from impls.protocol.eventtime import NO_TIME, EventTime
from impls.spark.columnnames import column_named
from impls.spark.columns import ordered
from impls.spark.plans import kind_of
from impls.spark.shipping import dumped
from impls.spark.source import delay_ms, event_time_sql, with_watermark
from impls.store.records import TIES
from impls.worker.output import Output

_TIME_MODES = ("none", "processingtime", "eventtime")
OUTPUT_MODES = ("append", "update")
_BINS = 256

Grouped = GroupedData | tuple[DataFrame, Sequence[str]]
"""What is grouped: `df.groupBy(...)`, or a frame and its key columns."""


def transform_with_state(  # noqa: PLR0917 - as many as Spark's method has
    grouped: Grouped,
    statefulProcessor: StatefulProcessor,
    outputStructType: StructType | str,
    outputMode: str,
    timeMode: str,
    initialState: Grouped | None = None,
    eventTimeColumnName: str = "",
    *,
    pandas: bool = False,
    known_as: str = "",
    results: Any,
    state_dir: str | Path,
    checkpoint: str | Path,
    workers: int,
    **options: Any,
) -> StreamHandle:
    """Starts a query that runs a StatefulProcessor of Spark's, unchanged, and returns the handle that rescales it.

    The arguments up to `eventTimeColumnName` are those of `GroupedData.transformWithState`, in its order. The processor
    gets a subclass of pyspark's StatefulProcessorHandle, and from it pyspark's ValueState, ListState and MapState;
    keys, rows, frames, timer values and errors are as in Spark. As there its `init` also runs once in the driver, and
    every epoch begins with a new copy of it.

    Args:
        grouped: a streaming DataFrame, grouped by columns: `df.groupBy("user")` or `(df, ["user"])`, ordered as
            for `impls.stream` by Kafka's `partition` and `offset`, or of files; without a watermark that stays 0.
        statefulProcessor: the processor.
        outputStructType: columns of the output, DDL text or a StructType.
        outputMode: "append" or "update"; rows go out as they come in both.
        timeMode: "none", "processingtime" or "eventtime". Processing time is that of the epoch, recorded in its plan.
        initialState: a DataFrame that is not streaming, grouped likewise; it is given to `handleInitialState` before
            the first record, and kept in the checkpoint's folder `initial`.
        eventTimeColumnName: the output's event time; a row up to the watermark of the epoch before fails the query.
        pandas: `handleInputRows` takes and gives frames of pandas, as `transformWithStateInPandas` has it.
        known_as: the processor's name in the checkpoint, by default its class's; the former one for a renamed class.
        results: where the output goes. In Kafka a result's key is the grouping key in `impls.processor.keys`' encoding,
            its value the row as JSON by the rules of Spark's `to_json`; a ForeachBatch gets the columns of the output.
        state_dir: these three as for `impls.stream`.
        checkpoint: the same.
        workers: the same.
        **options: what `impls.stream` takes besides: bins, mechanism, trigger, durability, ...

    Raises:
        UsageError: an argument cannot be used, or a variable has changed as `impls.processor.kept` does not allow.
        PySparkRuntimeError: `init` asks for something that Spark refuses too, such as a variable twice.
    """
    frame, keys = _frame_and_keys(grouped, "the first argument")
    mode, modes = _one_of(timeMode, _TIME_MODES, "timeMode"), _one_of(outputMode, OUTPUT_MODES, "outputMode")
    settings, (event_time, event_sql) = _settings(frame, options.get("mode")), _event_time(frame)
    output = _output(frame, outputStructType, eventTimeColumnName, settings)
    raw, key_schema = dumped(statefulProcessor, [statefulProcessor]), _key_schema(frame, keys)
    (schemas, handle), given = _tried(frame, raw, mode), {"output_mode": modes, "time_mode": mode, "pandas": pandas}
    kept = check_kept(Path(checkpoint), given, handle.variables, handle.deleted)
    program = Program(
        type(statefulProcessor).__name__, raw, key_schema, tuple(frame.columns), _places(frame, keys), output, mode,
        schemas, pandas, settings, eventTimeColumnName, with_micros(results), known_as, kept.histories
    )  # fmt: skip
    initial, write = _initial(initialState, key_schema, Path(checkpoint), options.get("bins", _BINS))
    return stream(
        _prepared(frame, columns_sql(key_schema, keys), event_sql, options.get("time")),
        key="key",
        operator=operator_of(program, _columns(frame), event_time, initial, reads_ranges=handle.in_ranges),
        results=results,
        state_dir=state_dir,
        checkpoint=checkpoint,
        workers=workers,
        _prepare=replace(options.pop("_prepare", NOTHING), files=write, first=kept.keep),
        **{**options, "time": "scheduled"} if options.get("time") else options,
    )


def with_micros(results: Any) -> bool:
    """Returns whether times in JSON have microseconds: a sink that reads the values back wants all of them."""
    return results.micros if isinstance(results, Output) else True


def _one_of(given: str, known: tuple[str, ...], what: str) -> Any:
    if str(given).lower() not in known:
        raise UsageError(f"The {what} {given!r} is unknown: use {', '.join(known[:-1])} or {known[-1]}.")
    return str(given).lower()


def _frame_and_keys(grouped: Grouped, what: str) -> tuple[DataFrame, list[str]]:
    """Returns what is grouped and the columns by which it is."""
    if isinstance(grouped, GroupedData):
        frame, keys = grouped._df, _grouping_columns(grouped)
    elif isinstance(grouped, tuple) and len(grouped) == 2 and isinstance(grouped[0], DataFrame):
        frame, keys = grouped[0], list(grouped[1])
    else:
        raise UsageError(f'As {what} give df.groupBy("user") or (df, ["user"]), not {type(grouped).__name__}.')
    if not keys:
        raise UsageError(f"The frame is grouped by none of its columns; it has {', '.join(frame.columns)}.")
    return frame, [column_named(frame, key) for key in keys]


def _grouping_columns(grouped: GroupedData) -> list[str]:
    """Returns the columns of a groupBy; raises UsageError for expressions."""
    found = grouped.count()._jdf.queryExecution().analyzed().groupingExpressions()
    names = []
    for expression in (found.apply(place) for place in range(found.size())):
        if kind_of(expression) != "AttributeReference":
            raise UsageError(f"Group by columns: give {expression.sql()} a name with withColumn first.")
        names.append(str(expression.name()))
    return names


def _output(frame: DataFrame, given: StructType | str, event_column: str, settings: Mapping[str, str]) -> StructType:
    """Returns the output's schema; raises UsageError where it has no form in JSON, or not the event time's column."""
    output = _schema_of(frame, given)
    json_of(output, settings["spark.sql.session.timeZone"])
    kind = output[event_column].dataType if event_column in output.names else None
    if event_column and not isinstance(kind, TimestampType | TimestampNTZType):
        raise UsageError(f"The eventTimeColumnName {event_column!r} is no timestamp column of the output.")
    return output


def _settings(frame: DataFrame, mode: str | None) -> dict[str, str]:
    """Returns the settings for pandas; in real time the session's bound on bytes is the runtime's own, and of blobs."""
    settings, jvm = pandas_settings(frame.sparkSession.conf.get), frame.sparkSession._jvm
    as_bytes = jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes  # type: ignore[union-attr]
    bound = NO_BOUND if mode == "real-time" else str(as_bytes(settings[MAX_BYTES]))
    return {**settings, MAX_BYTES: bound}


def _key_schema(frame: DataFrame, keys: list[str]) -> StructType:
    return StructType([StructField(name, frame.schema[name].dataType) for name in keys])


def _places(frame: DataFrame, keys: list[str]) -> tuple[int, ...]:
    return tuple(frame.columns.index(name) for name in keys)


def _initial(
    rows: Grouped | None, key: StructType, checkpoint: Path, bins: int
) -> tuple[InitialState | None, Callable[[bool], None]]:
    """Returns where the initial state is to be, and what writes it there; None, and nothing, without one."""
    if rows is None:
        return None, NOTHING.files
    frame, keys = _frame_and_keys(rows, "initialState")
    _check_alike(frame, keys, key)
    files = InitialFiles(checkpoint / "initial", bins, job_of(frame, columns_sql(key, keys), bins))
    folder = str((checkpoint / "initial").absolute())
    return InitialState(folder, tuple(frame.columns), _places(frame, keys)), files.write


def _schema_of(frame: DataFrame, given: StructType | str) -> StructType:
    found = frame.sparkSession._parse_ddl(given) if isinstance(given, str) else given
    if not isinstance(found, StructType):
        raise UsageError(f"The outputStructType must be a StructType or its DDL text, not {given!r}.")
    return found


def _event_time(frame: DataFrame) -> tuple[EventTime, str]:
    """Returns what is known of the frame's watermark, and the event time of a record, µs, as SQL."""
    marked = with_watermark(frame.schema)
    if len(marked) > 1:
        raise UsageError(f"The frame has {len(marked)} watermarks, on {', '.join(f.name for f in marked)}: use one.")
    if not marked:
        return EventTime.of_spark(EVENT_TIME), f"{NO_TIME}L"
    (column,) = marked
    if not isinstance(column.dataType, TimestampType):
        raise UsageError(f"The watermark must be on a timestamp, but {column.name} is none.")
    return EventTime.of_spark(EVENT_TIME, delay_ms(column)), event_time_sql(column.name)


def _tried(frame: DataFrame, raw: bytes, mode: TimeMode) -> tuple[dict[str, StructType], Handle]:
    """Runs a copy's `init` as Spark does in its driver; returns the schemas it gave as text, and its handle."""
    schemas: dict[str, StructType] = {}

    def parse(text: str) -> StructType:
        return schemas.setdefault(text, _schema_of(frame, text))

    processor: StatefulProcessor = cloudpickle.loads(raw)
    nothing = cast(Any, None)  # no state is read here: every call of a variable says that there is no key
    handle = Handle(Scope(nothing, 0), mode, parse)
    handle.phase = Phase.PRE_INIT
    processor.init(handle)
    processor.close()
    return schemas, handle


def _check_alike(frame: DataFrame, keys: list[str], key: StructType) -> None:
    if frame.isStreaming:
        raise UsageError("The initialState must not be a streaming DataFrame.")
    found = [frame.schema[name].dataType for name in keys]
    if found != [field.dataType for field in key.fields]:
        ours, theirs = (
            ", ".join(kind.simpleString() for kind in kinds) for kinds in ([f.dataType for f in key.fields], found)
        )
        raise UsageError(f"The initialState is grouped by columns of the types {theirs}, the input by {ours}.")


def _columns(frame: DataFrame) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in range(len(frame.columns)))


def _prepared(frame: DataFrame, key: str, event_sql: str, time: str | None) -> DataFrame:
    """Returns the columns that the operator reads, under names that are no other column's."""
    sequence = ordered(frame)
    order = [name for name in ("partition", "offset", *TIES) if name in sequence.columns]
    scheduled = [F.col(quoted(column_named(frame, time))).alias("scheduled")] if time else []
    own = [F.col(quoted(name)).alias(alias) for name, alias in zip(frame.columns, _columns(frame), strict=True)]
    event = F.expr(event_sql).cast("long").alias(EVENT_TIME)
    return sequence.select(*order, F.expr(key).alias("key"), event, *scheduled, *own)
