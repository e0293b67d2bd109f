"""A StatefulProcessor under the real driver and real workers, without Spark and Kafka."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState as Phase
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType
from timed import BINS, TimedRun

from impls.processor.encoding import Variable
from impls.processor.handle import Handle, TimeMode
from impls.processor.kept import History, check_kept
from impls.processor.keys import KeyCodec
from impls.processor.operator import EVENT_TIME, operator_of
from impls.processor.output import pandas_settings
from impls.processor.program import Program
from impls.processor.scope import Scope
from impls.protocol.eventtime import EventTime
from impls.store.hashing import hash_bytes

_KINDS = {"string": StringType(), "long": LongType(), "double": DoubleType(), "timestamp": TimestampType()}


def schema(text: str) -> StructType:
    """A schema from "name kind, ..." without a JVM."""
    pairs = [part.split() for part in text.split(",")]
    return StructType([StructField(name, _KINDS[kind]) for name, kind in pairs])


@dataclass
class Given:
    """What a query is made of; records are tuples of `columns`, an event time is a column of ms."""

    processor: StatefulProcessor
    output: str
    mode: TimeMode = "none"
    columns: str = "user string, n long"
    keys: tuple[str, ...] = ("user",)
    event: str = ""
    delay_ms: int = 0
    pandas: bool = False
    event_column: str = ""
    settings: dict[str, str] = field(default_factory=lambda: pandas_settings(lambda _name, default: default))
    histories: dict[str, History] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """The program, as `transform_with_state` makes it."""
        names = self.schema.names
        key = StructType([self.schema[name] for name in self.keys])
        places = tuple(names.index(name) for name in self.keys)
        raw = cloudpickle.dumps(self.processor)
        return Program(
            type(self.processor).__name__, raw, key, tuple(names), places, schema(self.output), self.mode,
            {text: schema(text) for text in _texts(self.processor)}, self.pandas, self.settings, self.event_column,
            histories=self.histories,
        )  # fmt: skip

    def variables(self) -> dict[str, Variable]:
        """The state variables, as a copy's `init` asks for them."""
        handle = Handle(Scope(cast(Any, None), 0), self.mode, schema)
        handle.phase = Phase.PRE_INIT
        cloudpickle.loads(cloudpickle.dumps(self.processor)).init(handle)
        return handle.variables

    @property
    def schema(self) -> StructType:
        """The schema of the input."""
        return schema(self.columns)

    def table(self, rows: Sequence[tuple[Any, ...]], offset: int, partition: Callable[[int], int]) -> pa.Table:
        """Records as workers get them."""
        codec, names = KeyCodec(self.program.key), self.schema.names
        keys = [codec.encode(tuple(row[place] for place in self.program.places)) for row in rows]
        event = names.index(self.event) if self.event else None
        arrow = to_arrow_schema(self.schema)
        own = [pa.array([row[i] for row in rows], kind.type) for i, kind in enumerate(arrow)]
        return pa.table(
            {
                "bin": pa.array([hash_bytes(key) * BINS >> 64 for key in keys], pa.int32()),
                "partition": pa.array([partition(i) for i in range(len(rows))], pa.int32()),
                "offset": pa.array(range(offset, offset + len(rows)), pa.int64()),
                "time": pa.nulls(len(rows), pa.int64()),
                "key": pa.array(keys, pa.binary()),
                EVENT_TIME: pa.array([0 if event is None else row[event] * 1000 for row in rows], pa.int64()),
                **{f"c{i}": column for i, column in enumerate(own)},
            }
        )


def _texts(processor: StatefulProcessor) -> Sequence[str]:
    return getattr(processor, "texts", ())


class ProcessorRun(TimedRun):
    """`epoch(rows, now)` runs one epoch on rows of the input, at a processing time, ms."""

    def __init__(self, folder: Path, given: Given, **more: Any):
        self.given, self.now = given, 1_000
        time = EventTime.of_spark(EVENT_TIME, given.delay_ms)
        columns = tuple(f"c{i}" for i in range(len(given.schema)))
        super().__init__(folder, operator_of(given.program, columns, time, None, reads_ranges=True), **more)

    def start(self) -> None:
        """Starts the driver, whose processing time is `now`; the checkpoint names the variables."""
        super().start()
        check_kept(self.folder / "checkpoint", {}, self.given.variables()).keep()
        self.driver.now_ms = lambda: self.now

    def epoch(self, rows: Sequence[Any] = (), now: int | None = None) -> Any:
        """Runs the next epoch, at the time of the last one by default."""
        self.now = self.now if now is None else now
        return super().epoch(rows)

    def table(self, rows: Sequence[Any]) -> pa.Table:
        self.offset += len(rows)
        return self.given.table(rows, self.offset - len(rows), lambda _row: 0)

    def values(self, *rows: Any, now: int | None = None) -> list[Any]:
        """Runs an epoch and returns what came of it."""
        before = len(self.results())
        self.epoch(rows, now)
        return self.results()[before:]
