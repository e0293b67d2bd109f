"""Operators of times in µs: windows in append mode and a processor, whose plans have a clock, and one that has none."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from impls.operators import Aggregate, Operator
from impls.operators.aggregates.operator import END, EVENT, WindowAggregate
from impls.operators.timed import KeyContext, KeyedProcess
from impls.processor.operator import EVENT_TIME, operator_of
from impls.processor.output import pandas_settings
from impls.processor.program import Program
from impls.protocol.eventtime import EventTime

NOBODY = 999  # the name of records that only tell the time
MOST = 1_000  # above any name, and any count of a window
_START = datetime(1970, 1, 1, tzinfo=UTC)


class _KeyColumns:
    """The columns of keys that are `end * MOST + number`."""

    def __init__(self, number: str):
        self._number = number

    def __call__(self, keys: list[bytes]) -> pa.Table:
        pairs = [divmod(int.from_bytes(key, "big"), MOST) for key in keys]
        ends, numbers = zip(*pairs, strict=True)
        return pa.table({"end": pa.array(ends, pa.int64()), self._number: pa.array(numbers, pa.int64())})


def windows(event_time: EventTime, number: str, count: str) -> Operator:
    """Returns what counts records by window and a number, in append mode; a result has `end`, both under their names.

    Records have the columns `end`, the number, and the two of a window.
    """
    keys = {"end": "bigint", number: "bigint"}
    return WindowAggregate(Aggregate(keys, {count: "count(*)"}, dict(keys)), event_time, _KeyColumns(number))


class Closed(StatefulProcessor):  # type: ignore[misc]
    """Counts records of a name by the end of their windows; the row of an end, µs, comes with the timer at it."""

    def init(self, handle: Any) -> None:
        """Takes the state's variable."""
        self._handle = handle
        self._counts = handle.getMapState("counts", _longs("due"), _longs("n"))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        """Counts records and asks for a timer at the end of each's window, ms."""
        for row in rows:
            due = row.end // 1000
            known = self._counts.getValue((due,)) if self._counts.containsKey((due,)) else (0,)
            self._counts.updateValue((due,), (known[0] + 1,))
            self._handle.registerTimer(due)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
        """Gives the row of an end."""
        due = expiredTimerInfo.getExpiryTimeInMs()
        (n,) = self._counts.getValue((due,))
        self._counts.removeKey((due,))
        yield Row(end=due * 1000, name=key[0], n=n, closed=_START + timedelta(milliseconds=due))


def processor(event_time: EventTime) -> Operator:
    """Returns `Closed` as an operator; records have the columns c0 (name), c1 (end of their window, µs) and time."""
    output = StructType([*_longs("end", "name", "n").fields, StructField("closed", TimestampType())])
    program = Program(
        "Closed", cloudpickle.dumps(Closed()), _longs("name"), ("name", "end"), (0,), output, "eventtime", {},
        pandas=False, settings=pandas_settings(lambda _name, default: default), event_column="closed",
    )  # fmt: skip
    return operator_of(program, ("c0", "c1"), event_time, None, reads_ranges=False)


def _longs(*names: str) -> StructType:
    return StructType([StructField(name, LongType()) for name in names])


class Each(KeyedProcess):
    """Gives each record on as soon as it comes, with its own time, which may be that of the watermark."""

    columns = (EVENT, "name")

    def __init__(self, disorder: int, partitions: int):
        self.event_time = EventTime(EVENT, disorder, partitions)  # type: ignore[misc]

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes one record."""
        if record["name"] != NOBODY:
            context.emit({"end": context.time, "name": record["name"], "n": 1})


def columns_of(runs: str, name: int, at: int, end: int) -> dict[str, int]:
    """Returns the columns of a record of what runs, times in µs."""
    if runs == "each":
        return {EVENT: at, "name": name}
    if runs == "closed":
        return {"c0": name, "c1": end, EVENT_TIME: at}
    return {"end": end, "name": name, EVENT: at, END: end}
