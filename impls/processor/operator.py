"""A processor as a keyed operator: one for time mode none, and one whose inputs have timers."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.operators.base import Effects, Input, Operator, RecordOperator
from impls.processor.program import Life, Program, Times
from impls.protocol.eventtime import NO_TIME, EpochClock, EventTime, whole_ms
from impls.store import naming
from impls.store.buffered import Buffered
from impls.store.records import Results, from_bytes
from impls.store.state import BinState


def expire(entries: Buffered, bins: Iterable[int], now: int) -> None:
    """Deletes what expires at `now`, ms, or before; what was renewed gets its expiry anew."""
    for bin_ in bins:
        for note, _ in entries.scan(bin_, *naming.timers_until(now, naming.EXPIRY)):
            entries.put(bin_, note, None)
            name = note[9:]
            if (raw := entries.get(bin_, name)) is not None:
                (_expire_items if name[:1] == naming.LIST else _expire_row)(entries, bin_, name, raw, now=now)


def _expire_row(entries: Buffered, bin_: int, name: bytes, raw: bytes, *, now: int) -> None:
    """Deletes a value or a field, or notes when it is to be looked at again."""
    front = naming.front_of(name, raw)
    row = raw[len(front) :]
    expires = naming.time_of(row)
    if expires <= now:
        entries.put(bin_, name, None)
        return
    entries.put(bin_, name, front + row[:8] + naming.time_bytes(expires) + row[16:])
    entries.put(bin_, naming.expiry_name(expires, name), b"")


def _expire_items(entries: Buffered, bin_: int, name: bytes, raw: bytes, *, now: int) -> None:
    """Deletes the items of a list that have expired; the others keep their order, and move up if one is between."""
    front = naming.front_of(name, raw)
    first, end = naming.list_bounds(raw[len(front) :])
    items = entries.scan(bin_, naming.item_name(name, first), naming.item_name(name, end))
    kept = [item for _, item in items if naming.time_of(item) > now]
    for index in range(first, end - len(kept)):
        entries.put(bin_, naming.item_name(name, index), None)
    for index, item in enumerate(kept, end - len(kept)):
        entries.put(bin_, naming.item_name(name, index), item)
    if not kept:
        entries.put(bin_, name, None)
        return
    due = min(naming.time_of(item) for item in kept)
    entries.put(bin_, name, front + naming.list_head(end - len(kept), end) + naming.time_bytes(due))
    entries.put(bin_, naming.expiry_name(due, name), b"")


_NOTED = (naming.TIMER, naming.EXPIRY)
EVENT_TIME = "event_us"  # the column of records' event time, µs


DONE = "done.json"


@dataclass(frozen=True)
class InitialState:
    """Where the initial state is: a file of Arrow for each bin that has any.

    Attributes:
        folder: of the files, which all hosts see.
        names: of its columns, which are others than the records'.
        places: which of them are the grouping key.
    """

    folder: str
    names: tuple[str, ...]
    places: tuple[int, ...]

    @property
    def now(self) -> int:
        """Processing time at which it was written, ms."""
        return int(json.loads((Path(self.folder) / DONE).read_bytes())["now"])

    def of(self, bin_: int) -> pa.Table | None:
        """Returns a bin's initial state: columns bin, key and c0, c1, ...; None where it has none."""
        path = Path(self.folder) / f"{bin_}.arrow"
        return from_bytes(path.read_bytes()) if path.exists() else None


class _Processing(Operator):
    """What both operators are alike in."""

    program: Program
    initial: InitialState | None
    has_entries: ClassVar[bool] = False  # that `migrate` could turn: what an entry is, only its variable knows

    def identity(self) -> dict[str, Any]:
        """Returns what decides where state lies and what its timers mean."""
        key = [[field.name, field.dataType.simpleString()] for field in self.program.key.fields]
        return {
            "processor": self.program.known_as or self.program.name,
            "key": key,
            "time_mode": self.program.time_mode,
        }

    def state_form(self) -> dict[str, Any]:
        """Says what keys are; `impls.processor.kept` has the variables."""
        begins = "empty" if self.initial is None else "own"
        return {"values": "processor", "begins": begins, "columns": self.program.key.jsonValue()}

    def create(self, bin_: int, bins: int, state: BinState) -> None:
        """Gives the processor the bin's initial state."""
        table = None if self.initial is None else self.initial.of(bin_)
        if self.initial is None or table is None:
            return
        entries = Buffered(state)
        program = replace(self.program, names=self.initial.names, places=self.initial.places)
        life = Life(program, entries, Times(self.initial.now, 0))
        life.initial(table)
        life.close()
        naming.note_changed(state, entries.flush(), _NOTED)


@dataclass(frozen=True)
class ProcessorOperator(_Processing, RecordOperator):
    """A processor of time mode none."""

    program: Program
    columns: tuple[str, ...]
    initial: InitialState | None = None
    output_schema: str | None = None
    reads_ranges: bool = False

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Gives the records to the processor, key by key."""
        entries, made = Buffered(state), _Made()
        life = Life(self.program, entries, Times(-1, -1))
        life.records(records)
        life.close()
        made.take(life, 0)
        entries.flush()
        return made.results()


@dataclass(frozen=True)
class TimedProcessor(_Processing):
    """A processor with timers: of processing time, which plans record, or of Spark's watermark.

    As in Spark an epoch gives the processor first its records, then the timers that are due. A bin whose last epoch was
    left out, as it was on the way, has the timers first that this one would have given: what it computes does not
    depend on when it moved.
    """

    program: Program
    columns: tuple[str, ...]
    event_time: EventTime
    initial: InitialState | None = None
    output_schema: str | None = None

    @property
    def timer_unit(self) -> int:  # type: ignore[override]
        """Timers are of ms."""
        return 1000 if self.program.time_mode == "eventtime" else 0

    def run(self, state: BinState, inputs: Sequence[Input]) -> Effects:
        """Runs inputs, oldest first."""
        entries, made, out = Buffered(state), _Made(), Effects()
        for one in inputs:
            assert one.clock is not None, "the plan of an operator with a clock has one"
            self._missed(entries, one, one.clock, made, out)
            self._run_input(entries, one, one.clock, made, out)
        out.results = made.results()
        return out

    def _missed(self, entries: Buffered, one: Input, clock: EpochClock, made: "_Made", out: Effects) -> None:
        """Gives the timers that the epoch before would have given to bins that waited in it."""
        waited = np.zeros_like(one.bins)
        waited[list(clock.waited)] = True
        times = Times(clock.before, whole_ms(clock.late))
        bins = self._due(entries.state, one.bins & waited, times)
        if bins:
            life = Life(self.program, entries, times)
            self._timers(life, bins, times)
            self._end(life, made, out, whole_ms(clock.sent))

    def _run_input(self, entries: Buffered, one: Input, clock: EpochClock, made: "_Made", out: Effects) -> None:
        times, records = Times(clock.now, whole_ms(one.watermark)), one.records
        if records is not None and self.program.time_mode == "eventtime":
            late = _late(records.column(EVENT_TIME).to_numpy(), whole_ms(clock.late))
            out.late += int(late.sum())
            records = records.filter(pa.array(~late)) if late.any() else records
        bins = self._due(entries.state, one.bins, times)
        given = records is not None and len(records) > 0
        if not given and not bins:
            return
        life = Life(self.program, entries, times)
        if given:
            life.records(records)
        self._timers(life, sorted({*bins, *life.scope.timed}), times)
        self._end(life, made, out, whole_ms(clock.sent))

    def _due(self, state: BinState, bins: NDArray[np.bool_], times: Times) -> list[int]:
        return state.bins_with_timers(bins, self._due_until(times))

    def _due_until(self, times: Times) -> int:
        return times.watermark if self.program.time_mode == "eventtime" else times.now

    def _timers(self, life: Life, bins: list[int], times: Times) -> None:
        life.timers(bins, self._due_until(times))
        if self.program.time_mode == "processingtime":
            expire(life.entries, bins, times.now)

    def _end(self, life: Life, made: "_Made", out: Effects, sent: int) -> None:
        life.close()
        made.take(life, sent)
        out.fired += life.fired
        naming.note_changed(life.entries.state, life.entries.flush(), _NOTED)


class _Made:
    """The output of inputs."""

    def __init__(self) -> None:
        self._bins: list[int] = []
        self._keys: list[bytes] = []
        self._payloads: list[bytes] = []

    def take(self, life: Life, sent: int) -> None:
        """Takes the output of a life, see `Life.payloads`."""
        self._payloads += life.payloads(sent)
        for bin_, key, count in life.sources:
            self._bins += [bin_] * count
            self._keys += [key] * count

    def results(self) -> Results:
        """Returns all of it."""
        return Results(np.array(self._bins, np.int32), self._keys, self._payloads)


def operator_of(
    program: Program,
    columns: tuple[str, ...],
    event_time: EventTime,
    initial: InitialState | None,
    *,
    reads_ranges: bool,
) -> ProcessorOperator | TimedProcessor:
    """Returns the operator of a program, whose records have the columns c0, c1, ... and, with timers, `event_us`."""
    output = program.output.json()
    if program.time_mode == "none":
        return ProcessorOperator(program, columns, initial, output, reads_ranges)
    return TimedProcessor(program, (*columns, EVENT_TIME), event_time, initial, output)


def _late(times_us: NDArray[np.int64], watermark: int) -> NDArray[np.bool_]:
    """Returns which records a watermark, ms, has passed; Spark keeps one without a time."""
    late: NDArray[np.bool_] = (times_us <= watermark * 1000) & (times_us != NO_TIME)
    return late
