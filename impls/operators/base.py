"""The interface of a keyed stateful operator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.protocol.eventtime import EpochClock, EventTime
from impls.store.hashing import bin_sql
from impls.store.records import Results, oldest_first
from impls.store.state import BinState


def quoted(name: str) -> str:
    """Returns a column's name as SQL has it, also one with a dot or a backtick.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Input:
    """What the bins of a worker get at once: in one commit, or in an earlier one in which their state had not come.

    Attributes:
        bins: those that get it, bool of shape (B,).
        watermark: of the epoch, None without event time, and before there is one.
        records: columns bin int32, partition int64, offset int64, time int64 (µs, null without a time column), key
            (int64 or binary) and `Operator.columns`; sorted by (partition, offset). None for none.
        clock: the times of the epoch, None where the event time of the operator has no clock.
    """

    bins: NDArray[np.bool_]
    watermark: int | None
    records: pa.Table | None = None
    clock: EpochClock | None = None


@dataclass
class Effects:
    """What a run of an operator leaves beside the state: results, late records and timers fired."""

    results: Results = field(default_factory=Results.none)
    late: int = 0
    fired: int = 0


class Operator(ABC):
    """create() is called once per bin when its state is made, then run() with each commit of its worker.

    Contract: deterministic (no clock, no randomness, no iteration over unordered sets), touches only the bins and keys
    of the records given, keeps nothing between calls. Any attempt of an epoch on any host then computes the same.

    Attributes:
        key_type: how the key reaches `run`: "binary", or "long" for 64-bit integers.
        columns: further columns of the input that `run` reads.
        has_entries: its state is entries, whose values another version of it may turn.
        reads_ranges: it reads entries by ranges of their keys, as a store does that keeps them in order.
        processing: timers go by the time at which the epoch was planned, ms, not by the watermark, and no record is
            late; the event time must have a clock.
        timer_unit: units of the event time in one unit of a timer's time, such as 1000 for timers of ms where the event
            time is µs; 0 where timers go by another time.
        event_time: the column of the event time and what is known of it, for operators with timers or windows
            (`impls.operators.timed`); None for operators without event time, which then cost nothing extra.
        output_schema: columns of the results as DDL text ("user string, n long"), or as a StructType's JSON, where each
            value is a JSON object of them, as Spark's `to_json` writes it; None where values are bytes of the
            operator's own. A sink that takes a DataFrame has these columns then.
    """

    key_type: ClassVar[Literal["binary", "long"]] = "binary"
    columns: tuple[str, ...] = ()
    has_entries: ClassVar[bool] = True
    reads_ranges: bool = False
    event_time: EventTime | None = None
    processing: bool = False
    timer_unit: int = 1
    output_schema: str | None = None

    def bin_sql(self, key: str, bins: int) -> str:
        """Returns a key's bin as a Spark SQL expression of the one for the key; by default the top bits of its hash."""
        return bin_sql(key, bins)

    def identity(self) -> dict[str, Any]:
        """Returns, by name, the parameters that decide where state lies and what it means, as JSON values.

        A checkpoint is continued only with equal ones; by default there are none, and any parameter may change.
        """
        return {}

    def state_form(self) -> dict[str, Any]:
        """Says, as JSON values, how state is read where the operator is not at hand; see `impls.reading.forms`.

        By default values are bytes, and only the operator knows with what state its bins begin if it creates any.
        """
        return {"values": "bytes", "begins": "empty" if type(self).create is Operator.create else "own"}

    def outside(self, records: pa.Table) -> NDArray[np.bool_] | None:
        """Returns which records have keys that the operator has no state for; None, as by default, where none has."""
        return None

    def create(self, bin_: int, bins: int, state: BinState) -> None:  # noqa: B027 - most operators start empty
        """Fills a new bin; the default leaves it empty."""

    @property
    def keyed(self) -> "Operator":
        """The operator without the steps of a pipeline; see `impls.operators.pipeline`."""
        return self

    def dump(self, value: Any) -> bytes:
        """Encodes a value of state; by default values are bytes."""
        return bytes(value)

    def load(self, raw: bytes) -> Any:
        """Decodes a value of state."""
        return raw

    def turned(self, key: bytes, raw: bytes, source: "Operator", function: Callable[..., Any]) -> bytes | None:
        """Returns an entry of another operator's state as one of this operator's, None to delete it.

        Args:
            key: the entry's key as stored.
            raw: its value.
            source: the operator that wrote it.
            function: the user's `migrate` or `back`: a value in, a value out.
        """
        value = function(source.load(raw))
        return None if value is None else self.dump(value)

    @abstractmethod
    def run(self, state: BinState, inputs: Sequence[Input]) -> Effects:
        """Runs inputs, oldest first, on the state of bins that are here, and returns the effects.

        Args:
            state: the state of the worker's bins.
            inputs: one at least; all but the last are of earlier commits.
        """


class RecordOperator(Operator):
    """An operator without event time: apply() is called with all records of a commit, if there are any."""

    @abstractmethod
    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Applies records, as in `Input`, to the state of the worker's bins, and returns the results."""

    def run(self, state: BinState, inputs: Sequence[Input]) -> Effects:
        """Applies the records of all inputs, those of the oldest first."""
        tables = [one.records for one in inputs if one.records is not None and len(one.records)]
        if not tables:
            return Effects()
        return Effects(self.apply(tables[0] if len(tables) == 1 else oldest_first(tables), state))
