"""What a native query's state becomes here: the operator that goes on with it, and its entries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from impls.adoption.native import NativeLog
from impls.adoption.processors import (
    aggregate_of,
    entries_of_aggregate,
    entries_of_processor,
    time_mode_of,
    variables_of,
    window_of,
)
from impls.adoption.reading import AGGREGATION, StateOperator, state_frame, struct_of
from impls.aggregation import GROUPING_KEY, with_windows
from impls.errors import UsageError
from impls.operators.base import Operator
from impls.processor.encoding import in_ranges
from impls.processor.kept import check_kept
from impls.processor.operator import EVENT_TIME, operator_of
from impls.processor.program import Program
from impls.processor.start import OUTPUT_MODES
from impls.protocol.eventtime import EventTime
from impls.store.naming import EXPIRY, TIMER

_AGGREGATION_FORMAT = "2"
_GROUPING_ID = "spark_grouping_id"  # a column of the key that Spark adds
_KEY = "key"  # the column by which records go to a processor's bins


@dataclass(frozen=True)
class Wanted:
    """What goes on with the state, which state does not say.

    Attributes:
        aggregates: name of each result and the aggregate, in the order of the query; None if it has none.
        processor: name of the processor's class, "" if it has none.
        pandas: whether the processor takes frames of pandas.
        keys: names of the key's columns, None for those in the state.
        output_mode: of aggregates by windows, "" where none was given.
        types: of columns that aggregates read, as DDL.
    """

    aggregates: Mapping[str, str] | None = None
    processor: str = ""
    pandas: bool = False
    keys: Sequence[str] | None = None
    output_mode: str = ""
    types: str = ""

    def named(self, key: StructType) -> StructType:
        """Returns the type of the grouping key with the names wanted; raises UsageError for another number of them."""
        names = list(self.keys or key.names)
        if len(names) != len(key):
            raise UsageError(
                f"The state has {len(key)} key columns ({', '.join(key.names)}), but {len(names)} are named."
            )
        return StructType([StructField(name, field.dataType) for name, field in zip(names, key.fields, strict=True)])


@dataclass(frozen=True)
class NativeState:
    """A native query's state.

    Attributes:
        operator: what goes on with it, as far as a checkpoint names it.
        key: name of the key column.
        entries: see `impls.adoption.reading`.
        timers: what the keys of entries begin with that have a time behind it.
        keep: writes into the folder of the checkpoint what else it keeps of the operator.
    """

    operator: Operator
    key: str
    entries: DataFrame
    timers: tuple[bytes, ...] = ()
    keep: Callable[[Path], object] = lambda _folder: None


def found_in(
    spark: SparkSession, location: str, log: NativeLog, state: StateOperator, wanted: Wanted, *, bins: int
) -> NativeState:
    """Returns the state of a checkpoint behind its last batch.

    Raises UsageError when it has a form that is not known, or is not that of what is wanted.
    """
    read = partial(state_frame, spark, location, log.batch, state.number)
    if state.kind == AGGREGATION:
        return _aggregation(read(), location, log, wanted, bins)
    if not wanted.processor:
        raise UsageError(f"The state in {location} is that of a processor: name its class.")
    variables = variables_of(read, state)
    entries, mode = entries_of_processor(read, state, variables, bins), time_mode_of(state)
    schema = read(readRegisteredTimers="true") if not variables else next(iter(variables.values()))[1]
    key = wanted.named(struct_of(schema, "key"))
    program = Program(wanted.processor, b"", key, (), (), StructType(), mode, {}, wanted.pandas, {})
    many = in_ranges(variable for variable, _ in variables.values())
    operator = operator_of(program, (), EventTime.of_spark(EVENT_TIME), None, reads_ranges=many)
    settings = {
        "output_mode": str(state.properties["outputMode"]).lower(), "time_mode": mode, "pandas": wanted.pandas,
    }  # fmt: skip
    kept = {name: variable for name, (variable, _) in variables.items()}
    return NativeState(
        operator, _KEY, entries, (TIMER, EXPIRY), lambda folder: check_kept(folder, settings, kept).keep()
    )


def _parsed(state: DataFrame, types: str) -> StructType:
    try:
        return StructType() if not types else cast(StructType, state.sparkSession._parse_ddl(types))
    except PySparkException as error:
        raise UsageError(f'The types {types!r} are no DDL, such as "price decimal(8,2), amount int".') from error


def _aggregation(state: DataFrame, location: str, log: NativeLog, wanted: Wanted, bins: int) -> NativeState:
    if wanted.aggregates is None:
        raise UsageError(f"The state in {location} is that of groupBy().agg(): name its aggregates.")
    if log.aggregation_format != _AGGREGATION_FORMAT:
        raise UsageError(
            f"The aggregates in {location} have state format {log.aggregation_format}; this version reads "
            f"{_AGGREGATION_FORMAT}."
        )
    own = struct_of(state, "key")
    if not own.names or _GROUPING_ID in own.names:
        what = "groupBy() without a key" if not own.names else "rollup, cube or grouping sets"
        raise UsageError(
            f"The state in {location} is that of {what}, which cannot be adopted: only groupBy of columns."
        )
    key = wanted.named(own)
    known = {f.name: f.dataType.simpleString() for f in _parsed(state, wanted.types).fields}
    operator, window = aggregate_of(key, struct_of(state, "value"), wanted.aggregates, known), window_of(key)
    append = _appends(location, wanted.output_mode, window, log.watermark_ms > 0)
    expire = append or (window is not None and log.watermark_ms > 0)
    entries = entries_of_aggregate(state, operator, bins, expire=expire)
    if expire:  # its state says nothing of the delay, which belongs to the stream
        return NativeState(with_windows(operator, 0, key if append else None), GROUPING_KEY, entries, (EXPIRY,))
    return NativeState(operator, GROUPING_KEY, entries)


def _appends(location: str, mode: str, window: str | None, watermark: bool) -> bool:
    """Returns whether a query is in append mode; raises UsageError where that has to be said, or cannot be."""
    if mode and mode not in OUTPUT_MODES:
        raise UsageError(f"The output mode {mode!r} cannot be adopted: use {' or '.join(OUTPUT_MODES)}.")
    if window is None and mode == "append":
        raise UsageError(f"The aggregates in {location} have no window, and append mode needs one.")
    if window is not None and watermark and not mode:
        raise UsageError(
            f"The state in {location} has windows under a watermark and does not say in which output mode: in append "
            "mode the rows of open windows are still to come. Name it: output_mode update or append."
        )
    return mode == "append"
