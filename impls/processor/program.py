"""A user's processor with all that a worker needs to run it, and one life of it: init, data, timers, close."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.conversion import ArrowBatchTransformer
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState as Phase
from pyspark.sql.types import StructType

from impls.errors import FOR_KEY, UsageError
from impls.processor.handle import Handle, TimeMode
from impls.processor.kept import History
from impls.processor.keys import KeyCodec
from impls.processor.output import Frames, Rows, check_event_times, json_of, rows_per_frame
from impls.processor.rows import row_maker
from impls.processor.scope import Scope
from impls.store import naming
from impls.store.buffered import Buffered

_Key = tuple[int, bytes]
_FAMILIES = (naming.VALUE, naming.LIST, naming.ITEM, naming.MAP)


@dataclass(frozen=True)
class Times:
    """What a processor knows of time in an input.

    Attributes:
        now: processing time, ms.
        watermark: ms, 0 before there is one.
    """

    now: int
    watermark: int


@dataclass(frozen=True)
class Program:
    """A processor and how it is run; constant for a query's life.

    Attributes:
        name: of the processor's class, for errors.
        processor: the processor, pickled: an input begins with a new copy, as a task of Spark's does.
        key: schema of the grouping key.
        names: columns of the input; records have them as c0, c1, ...
        places: which of them are the grouping key.
        output: schema of the output.
        time_mode: what timers and times to live go by.
        schemas: the schemas that were given as DDL, by their text.
        pandas: frames of pandas go in and out, and no rows.
        settings: see `impls.processor.output.pandas_settings`.
        event_column: column of the output that has the event time; "" for none.
        micros: times of the output are given to the µs, and not to the ms as `to_json` does.
        known_as: what the checkpoint calls the processor; "" for `name`.
        histories: of the state variables that have had several schemas.
    """

    name: str
    processor: bytes
    key: StructType
    names: tuple[str, ...]
    places: tuple[int, ...]
    output: StructType
    time_mode: TimeMode
    schemas: dict[str, StructType]
    pandas: bool
    settings: dict[str, str]
    event_column: str = ""
    micros: bool = False
    known_as: str = ""
    histories: dict[str, History] = field(default_factory=dict)

    @cached_property
    def codec(self) -> KeyCodec:
        """The encoding of the grouping key."""
        return KeyCodec(self.key)

    @cached_property
    def to_json(self) -> Any:
        """Makes JSON of batches of the output."""
        return json_of(self.output, self.settings["spark.sql.session.timeZone"], micros=self.micros)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in {"codec", "to_json"}}

    def loaded(self) -> StatefulProcessor:
        """Returns a new copy of the processor."""
        processor: StatefulProcessor = cloudpickle.loads(self.processor)
        return processor

    def schema(self, text: str) -> StructType:
        """Returns the schema of a DDL text; raises UsageError for one that `init` did not give on the driver."""
        if text not in self.schemas:
            raise UsageError(
                f"{self.name} gives the schema {text!r} in a worker, but not when its init ran on the driver: give "
                "it as a StructType, or always."
            )
        return self.schemas[text]

    def collector(self) -> Rows | Frames:
        """Returns what takes the output of an input."""
        return Frames(self.output, self.settings) if self.pandas else Rows(self.output)


class Life:
    """One life of a processor, with the state of the keys of one input; close() ends it.

    An exception of the user's code goes through as it is, with a note that names the key.

    Attributes:
        scope: the state.
        sources: (bin, key, rows) of what was given, in order; `output` has the rows.
        fired: timers so far.
    """

    def __init__(self, program: Program, entries: Buffered, times: Times):
        self.program, self.entries, self.scope = program, entries, Scope(entries, times.now)
        self.output, self.sources, self.fired = program.collector(), list[tuple[int, bytes, int]](), 0
        known = program.time_mode != "none"
        self._values = TimerValues(times.now if known else -1, times.watermark if known else -1)
        self._handle = Handle(self.scope, program.time_mode, program.schema, program.histories)
        self._cleared = set[int]()
        self._processor = program.loaded()
        self._processor.init(self._handle)
        self._handle.phase = Phase.INITIALIZED

    def records(self, table: pa.Table) -> None:
        """Gives records to the processor, key by key; columns bin, key and c0, c1, ..."""
        for bin_, key, values, rows in self._visit_keys(table):
            with self._noted("handleInputRows", bin_, key):
                given = self._processor.handleInputRows(values, rows, self._values)
                self.sources.append((bin_, key, self.output.take(given)))

    def initial(self, table: pa.Table) -> None:
        """Gives initial state to the processor, key by key; columns as for `records`."""
        for bin_, key, values, states in self._visit_keys(table):
            for state in states:
                with self._noted("handleInitialState", bin_, key):
                    self._processor.handleInitialState(values, state, self._values)

    def timers(self, bins: Iterable[int], until: int) -> None:
        """Gives the timers of bins up to a time, ms, to the processor, in order of (time, bin, key).

        As in Spark these are those set when the first one goes off: one that is set meanwhile goes off with the next
        input, and one that is deleted meanwhile goes off too.
        """
        due = sorted(timer for bin_ in bins for timer in self._due(bin_, until))
        self._handle.phase = Phase.DATA_PROCESSED
        self._begin(list(dict.fromkeys((bin_, key) for _, bin_, key in due)))
        for time, bin_, key in due:
            self.scope.at(bin_, key)
            with self._noted(f"handleExpiredTimer of {time}", bin_, key):
                rows = self._processor.handleExpiredTimer(
                    key=self.program.codec.decode(key),
                    timerValues=self._values,
                    expiredTimerInfo=ExpiredTimerInfo(time),
                )
                self.sources.append((bin_, key, self.output.take(rows)))
            self._handle.deleteTimer(time)
        self.fired += len(due)

    def close(self) -> None:
        """Ends the processor's life."""
        self._handle.phase = Phase.TIMER_PROCESSED
        self.scope.bin = -1
        self._processor.close()
        self._handle.phase = Phase.CLOSED

    def payloads(self, sent: int) -> list[bytes]:
        """Returns the output as JSON, one per row; raises what pyarrow does for rows of other types than the output's.

        A row with an event time up to `sent`, ms, fails the query. As in Spark that is the watermark of the epoch
        before, or an earlier one as long as timers of bins that move have not run up to it; those of the epoch have
        later times.
        """
        try:
            batches = self.output.batches()
        except Exception:
            self._find_wrong()
            raise
        if self.program.event_column:
            for batch in batches:
                check_event_times(batch, self.program.event_column, sent)
        return [payload for batch in batches for payload in self.program.to_json(batch)]

    def _visit_keys(self, table: pa.Table) -> Iterator[tuple[int, bytes, Any, Iterator[Any]]]:
        """Yields (bin, key, the key's values, its rows or frames) of each key, whose state is at hand then."""
        groups = _groups(table)
        self._begin(list(groups))
        parts = self._frames(table, groups) if self.program.pandas else self._rows(table, groups)
        for (bin_, key), (values, given) in zip(groups, parts, strict=True):
            self.scope.at(bin_, key)
            yield bin_, key, values, given

    def _begin(self, groups: Sequence[_Key]) -> None:
        """Prepares the state for keys; their bins lose what `init` deleted, once, before anything is written."""
        self.scope.expect(groups)
        bins = {bin_ for bin_, _ in groups} - self._cleared if self._handle.deleted else ()
        self._cleared.update(bins)
        for bin_ in sorted(bins):
            for head in (family + naming.label_part(name) for name in self._handle.deleted for family in _FAMILIES):
                self.entries.delete_all(bin_, head, naming.after(head))

    def _due(self, bin_: int, until: int) -> Iterator[tuple[int, int, bytes]]:
        for name, value in self.entries.scan(bin_, *naming.timers_until(until)):
            time, key = naming.timer_of(name, value)
            yield time, bin_, key

    def _rows(self, table: pa.Table, groups: dict[_Key, list[int]]) -> Iterator[tuple[Any, Iterator[Any]]]:
        program, make = self.program, row_maker(self.program.names)
        columns = [table.column(f"c{i}").to_pylist() for i in range(len(program.names))]
        rows = list(zip(*columns, strict=True))
        for places in groups.values():
            first = rows[places[0]]
            yield tuple([first[place] for place in program.places]), iter([make(rows[i]) for i in places])

    def _frames(self, table: pa.Table, groups: dict[_Key, list[int]]) -> Iterator[tuple[Any, Iterator[Any]]]:
        import pandas as pd  # noqa: PLC0415 - for processors of pandas only

        program, settings = self.program, self.program.settings
        frame = table.select([f"c{i}" for i in range(len(program.names))]).rename_columns(list(program.names))
        series = ArrowBatchTransformer.to_pandas(
            frame,
            timezone=settings["spark.sql.session.timeZone"],
            prefer_int_ext_dtype=settings["spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"] == "true",
        )
        rows = list(pd.concat(series, axis=1).itertuples(index=False))
        most = rows_per_frame(frame, settings)
        for places in groups.values():
            key = tuple([rows[places[0]][place] for place in program.places])
            pieces = [places[at : at + most] for at in range(0, len(places), most)]
            yield key, (pd.DataFrame([rows[i] for i in piece]) for piece in pieces)

    @contextmanager
    def _noted(self, where: str, bin_: int, key: bytes) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"{where} of {self.program.name}{FOR_KEY}{self.program.codec.decode(key)} in bin {bin_}.")
            raise

    def _find_wrong(self) -> None:
        """Raises what is wrong with the output, with the key that it was given for."""
        if isinstance(self.output, Rows):
            at = 0
            for bin_, key, count in self.sources:
                one = Rows(self.program.output)
                one.rows, at = self.output.rows[at : at + count], at + count
                with self._noted("The output", bin_, key):
                    one.batches()


def _groups(table: pa.Table) -> dict[_Key, list[int]]:
    """Returns the rows of each key, keys in order of (bin, key), rows in theirs."""
    groups: dict[_Key, list[int]] = {}
    for place, key in enumerate(zip(table.column("bin").to_pylist(), table.column("key").to_pylist(), strict=True)):
        groups.setdefault(key, []).append(place)
    return {key: groups[key] for key in sorted(groups)}
