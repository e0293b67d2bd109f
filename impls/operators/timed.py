"""Operators with event time: records and timers."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.operators.base import Effects, Input, Operator, RecordOperator
from impls.operators.blame import Failures, Together
from impls.protocol.eventtime import MAX_TIME, NO_TIME, EventClock, EventTime
from impls.protocol.jsontext import value_from_text, value_to_text
from impls.store.keyed import Keyed, variable_of
from impls.store.naming import VariableNameError, front_of
from impls.store.records import Results
from impls.store.state import BinState


class TimedOperator(Operator):
    """Per bin and input: on_timer() for timers that are due, then on_records().

    Timers come before the records because the watermark is that of the epochs before: a record never finds a
    timer that is due, also when the bin or the record had to wait. Contract as for `Operator`; timers must not depend
    on the watermark, and `event_time` must be given, with its column among `columns`.

    Attributes:
        late: what becomes of records with an event time below the watermark: they are counted, and "drop" leaves them
            out while "keep" hands them over like others.

    With `processing`, `Keyed.watermark` is the time at which the epoch was planned.
    """

    event_time: EventTime
    late: ClassVar[Literal["drop", "keep"]] = "drop"

    def identity(self) -> dict[str, Any]:
        """Returns the column of the event time, in whose unit timers are kept."""
        return {"event_time": self.event_time.column}

    def state_form(self) -> dict[str, Any]:
        """Says that entries are those of `Keyed`."""
        return {**super().state_form(), "values": "keyed"}

    @abstractmethod
    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Applies records; columns and order as for `Input`."""

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Is called when the watermark has reached the time of a timer."""
        raise NotImplementedError(f"{type(self).__name__} sets a timer, but has no on_timer")

    def turned(self, key: bytes, raw: bytes, source: Operator, function: Callable[..., Any]) -> bytes | None:
        """Turns values, items of lists and fields of maps: `function(value, name)`, both as the operator gave them."""
        name = variable_of(key)
        if name is None:
            return raw
        front = front_of(key, raw)
        value = function(value_from_text(raw[len(front) :]), name)
        return None if value is None else front + value_to_text(value)

    def run(self, state: BinState, inputs: Sequence[Input]) -> Effects:
        """Runs inputs, oldest first."""
        keyed, out, together = Keyed(state), Effects(), Together(careful=state.careful)
        for one in inputs:
            keyed.watermark = until = self._until(one)
            if until is not None and (due := state.bins_with_timers(one.bins, until)):
                out.fired += keyed.fire(due, until, lambda b, time, key: self.on_timer(b, time, key, keyed))
            records = one.records
            if records is not None and one.watermark is not None and not self.processing:
                late = records.column(self.event_time.column).to_numpy() < one.watermark
                out.late += int(late.sum())
                records = records.filter(pa.array(~late)) if self.late == "drop" and late.any() else records
            if records is not None and len(records):
                with together:
                    self.on_records(records, keyed)
            keyed.flush()
        together.check()
        bins, keys, payloads = keyed.emitted
        out.results = Results(np.array(bins, np.int32), keys, payloads)
        return out

    def _until(self, one: Input) -> int | None:
        """Returns the time up to which timers are due in an input."""
        if not self.processing:
            return one.watermark
        assert one.clock is not None, "the event time of an operator of processing time has a clock"
        return one.clock.now


def valid_times(times: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns which event times are there and between NO_TIME and MAX_TIME, both included."""
    values = times.fill_null(MAX_TIME + 1).to_numpy() if times.null_count else times.to_numpy()
    valid: NDArray[np.bool_] = (values >= NO_TIME) & (values <= MAX_TIME)
    return valid


def clock_of(operator: Operator, bins: int, *, linked: bool = False) -> EventClock | None:
    """Returns the driver's clock for an operator with event time, None for another; see `impls.protocol.eventtime`."""
    if operator.event_time is None:
        return None
    if isinstance(operator, RecordOperator) or operator.event_time.column not in operator.columns:
        raise UsageError(f"{type(operator).__name__} has an event time: make it a TimedOperator that reads its column.")
    return EventClock(operator.event_time, bins, linked=linked)


class KeyContext:
    """The view of one key that a KeyedProcess works on: its state, its timers and its results.

    Attributes:
        bin, key: the key and its bin.
        time: event time of the record or timer.
    """

    __slots__ = ("bin", "key", "keyed", "time")

    def __init__(self, keyed: Keyed, bin_: int, key: bytes, time: int):
        self.keyed, self.bin, self.key, self.time = keyed, bin_, key, time

    def value(self, name: str = "") -> Any:
        """Returns the key's value, None when it has none; to change it, call set_value with it."""
        return self.keyed.value(self.bin, self.key, name)

    def set_value(self, value: Any, name: str = "") -> None:
        """Sets the key's value; None deletes it."""
        self.keyed.set_value(self.bin, self.key, value, name)

    def append(self, item: Any, name: str = "") -> None:
        """Adds an item to the end of the key's list."""
        self.keyed.append(self.bin, self.key, item, name)

    def items(self, name: str = "") -> list[Any]:
        """Returns the key's list, empty when it has none."""
        return self.keyed.items(self.bin, self.key, name)

    def clear(self, name: str = "") -> None:
        """Deletes the key's list."""
        self.keyed.clear(self.bin, self.key, name)

    def field(self, field: bytes, name: str = "") -> Any:
        """Returns a field of the key's map, None when it is not there."""
        return self.keyed.field(self.bin, self.key, field, name)

    def set_field(self, field: bytes, value: Any, name: str = "") -> None:
        """Sets a field of the key's map; None deletes it."""
        self.keyed.set_field(self.bin, self.key, field, value, name)

    def fields(self, name: str = "") -> list[tuple[bytes, Any]]:
        """Returns (field, value) of the key's map, see `Keyed.fields`."""
        return self.keyed.fields(self.bin, self.key, name)

    def clear_fields(self, name: str = "") -> None:
        """Deletes the key's map."""
        self.keyed.clear_fields(self.bin, self.key, name)

    def set_timer(self, time: int) -> None:
        """Asks for a call of `timer` when the watermark has reached a time."""
        self.keyed.set_timer(self.bin, time, self.key)

    def cancel_timer(self, time: int) -> None:
        """Takes a timer back."""
        self.keyed.cancel_timer(self.bin, time, self.key)

    def emit(self, value: Any) -> None:
        """Sends a result of the key, as compact JSON."""
        self.keyed.emit(self.bin, self.key, value)


class KeyedProcess(TimedOperator):
    """One function per record and one per timer, each with the state of its key: the operator for users.

    An operator that counts clicks per user and sends the count 30 minutes after the last one:

    >>> class Sessions(KeyedProcess):
    ...     event_time = EventTime("at")
    ...     columns = ("at",)
    ...     def record(self, record, one):
    ...         count, until = one.value() or (0, None)
    ...         if until is not None:
    ...             one.cancel_timer(until)
    ...         one.set_value((count + 1, one.time + 1800))
    ...         one.set_timer(one.time + 1800)
    ...     def timer(self, one):
    ...         one.emit(one.value()[0])
    ...         one.set_value(None)
    """

    @abstractmethod
    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes one record, `columns` by name; per key in (partition, offset) order."""

    def timer(self, context: KeyContext) -> None:
        """Takes one timer of `one.time`."""
        raise NotImplementedError(f"{type(self).__name__} sets a timer, but has no `timer`")

    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Applies records one by one."""
        bins, keys = records.column("bin").to_pylist(), records.column("key").to_pylist()
        if keys and isinstance(keys[0], int):
            keys = records.column("key").to_numpy().astype(">i8").view("V8").tolist()
        times = records.column(self.event_time.column).to_numpy().astype(np.int64).tolist()
        keyed.load(bins, keys)
        rows = records.select(list(self.columns)).to_pylist()
        failures = Failures(records, "record", careful=keyed.careful)
        for place, (bin_, key, time, row) in enumerate(zip(bins, keys, times, rows, strict=True)):
            if keyed.careful:
                keyed.begin()
            try:
                self.record(row, KeyContext(keyed, bin_, key, time))
                if keyed.careful:
                    keyed.settle()
            except VariableNameError:
                raise
            except Exception as error:
                failures.add(place, error)
                keyed.take_back()
        failures.check()

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Takes one timer."""
        self.timer(KeyContext(keyed, bin_, key, time))
