"""What all NEXMark queries share: what they read, how they are keyed, and in which dialect they answer."""

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from impls.operators.timed import KeyedProcess, TimedOperator
from impls.protocol.eventtime import EventTime

PERSON = 0
AUCTION = 1
BID = 2
SECOND = 1_000  # event time is in milliseconds, as Beam's


class _Answering:
    """Sends results that are JSON objects of the names in `fields`."""

    fields: ClassVar[tuple[str, ...]]

    def result(self, *values: Any) -> dict[str, Any]:
        """Returns a result, given its values in the order of `fields`."""
        return dict(zip(self.fields, values, strict=True))


class SecondStage(_Answering, KeyedProcess):
    """The second stage of a query, keyed otherwise than the first one, whose results it reads; see `impls.chain`.

    A result of the first stage has the event time `at`, ms. One of a window has the window's last millisecond, as
    Beam's have and Spark's `window_time`.

    Attributes:
        columns: fields of the first stage's results, `at` among them.
        types: those that are no integers, with their types.
        key: the field that is the key.
        fields: names in a result of the query.
    """

    event_time = EventTime("at")
    types: ClassVar[dict[str, str]] = {}
    key: ClassVar[str]

    @classmethod
    def schema(cls) -> str:
        """Returns the columns as DDL, for `impls.results_of`."""
        return ", ".join(f"`{name}` {cls.types.get(name, 'bigint')}" for name in cls.columns)


class NexmarkQuery:
    """A NEXMark query as the harness sees it; the columns it reads are the operator's `columns`.

    Attributes:
        dialect: whose definition it follows: "beam", "flink-sql" or "megaphone" (see the class's docstring for where it
            differs), stated with every result.
        fields: names in a result, which is a JSON object.
        keys: by kind of event that the query reads, the field whose value is the key.
        where: by kind of event, an SQL condition over the event's fields; others are left out before the exchange.
        window_ms: of a query on processing time the size of its windows: results come so long behind the last record.
        second: of a query of two stages the second one, whose results are the query's; the class is the first one.
    """

    dialect: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    keys: ClassVar[dict[int, str]]
    where: ClassVar[dict[int, str]] = {}
    window_ms: ClassVar[int] = 0
    second: ClassVar[type[SecondStage] | None] = None
    columns: tuple[str, ...]

    @classmethod
    def reads_channels(cls) -> bool:
        """Returns whether bids must carry channel and url."""
        return not {"channel", "url"}.isdisjoint(cls.columns)


class TimedQuery(_Answering, NexmarkQuery, TimedOperator):
    """A query on event time; late records are dropped and counted, unless it says otherwise.

    Args of the constructor:
        partitions: input partitions, see `EventTime`.
        disorder: how far events of one partition may be out of order, ms.
    """

    def __init__(self, partitions: int = 0, disorder: int = 0):
        self.event_time = EventTime("dateTime", disorder, partitions)

    def passed_on(self, *values: Any) -> dict[str, Any]:
        """Returns a result for the second stage, given its values in the order of that one's columns."""
        assert self.second is not None, "the query has a second stage"
        return dict(zip(self.second.columns, values, strict=True))

    def identity(self) -> dict[str, Any]:
        """Returns the dialect too: the class is the query, and what it keeps follows from both."""
        return {**super().identity(), "dialect": self.dialect}


def id_bytes(number: int) -> bytes:
    """Returns an id, or a time, as the 8 big-endian bytes that are a key."""
    return number.to_bytes(8, "big", signed=True)


def id_of(key: bytes) -> int:
    """Returns the id, or time, that a key encodes."""
    return int.from_bytes(key, "big", signed=True)


def window_start(time: int, size: int) -> int:
    """Returns the start of the aligned window [start, start + size) that a time lies in."""
    return time - time % size


def mean(total: int, number: int) -> int:
    """Returns an average of prices, rounded half up as Beam's `Math.round` does it, without its detour over doubles.

    >>> mean(5, 2), mean(10, 4), mean(7, 3)
    (3, 3, 2)
    """
    return (2 * total + number) // (2 * number)


def columns_of(records: pa.Table, *names: str) -> tuple[np.ndarray, ...]:
    """Returns columns of records as arrays."""
    return tuple(records.column(name).to_numpy() for name in names)
