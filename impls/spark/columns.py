"""Columns of the query: what a step reads of the input, in which order, and the worker of each record.

An epoch that is run again must get its records in the order they had, and so must every key. Kafka numbers the records
of a partition. Files have no numbers: their records are ordered by the file's modification time, in milliseconds as
Spark lists it, then by the file's path (its 64-bit hash), then by the row's place in the file.

An event is one flat JSON object with Beam's field names and the time at which it was due to be sent, `scheduled_us`
(µs since the Unix epoch); `dateTime` and `expires` are event time in ms. Only bids have a bidder, and only auctions a
seller; what has neither is a person:

    {"id":1000,"name":"Peter Jones","city":"Boise","state":"ID", ... ,"dateTime":1436918400000,"scheduled_us":...}
    {"id":1000,"itemName":"...","initialBid":90,"reserve":190,"expires":1436918400166,"seller":1000,"category":10, ...}
    {"auction":1000,"bidder":1001,"price":120,"dateTime":1436918400002,"scheduled_us":...}
"""

import functools
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, DataType, IntegralType, StringType

from impls.errors import UsageError
from impls.operators.base import Operator, quoted
from impls.operators.nexmark.base import AUCTION, BID, PERSON, NexmarkQuery
from impls.spark.carrying import KEPT, OFFSET, PARTITION
from impls.spark.columnnames import check_collation, column_named
from impls.spark.identity import Identified
from impls.store.records import NUMBER, PRODUCER, ROW, TIES

_ORDER = ("partition", "offset")
_PLACES = ("row_index", "file_block_start")  # Parquet counts rows; the rows of a block of another format come in order


def ordered(df: DataFrame) -> DataFrame:
    """Returns a streaming DataFrame with the columns `partition` and `offset`, and for files `TIES`, added if need be.

    Raises:
        UsageError: it has no order of which this knows.
    """
    missing = [name for name in _ORDER if name not in df.columns]
    if not missing:
        return df
    if not df.isStreaming:
        raise UsageError("The DataFrame is static: stream takes one of spark.readStream.")
    fields = _metadata(df)
    place = next((place for place in _PLACES if place in fields), None)
    if place is None or len(missing) < len(_ORDER):
        raise UsageError(
            f"The input has no column {missing[0]!r}; it has {', '.join(df.columns)}. A source that is neither Kafka's "
            "nor files needs columns of its own for the order of its records: partition, an integer, and offset, a "
            "long that grows within a partition; a record that is read again must have the same ones."
        )
    return df.select("*", *_of_files(place))


def _metadata(df: DataFrame) -> list[str]:
    """Returns the fields of a file source's column `_metadata`, none where there is no such column.

    Asked of the plan: to select what is not there raises an error whose stack pyspark prints, caught or not.
    """
    hidden = df._jdf.queryExecution().analyzed().metadataOutput()
    columns = [hidden.apply(place) for place in range(hidden.size())]
    return [name for column in columns if column.name() == "_metadata" for name in column.dataType().fieldNames()]


def _of_files(place: str) -> list[Column]:
    file, row = TIES
    return [
        F.lit(0).alias("partition"),
        F.unix_millis("_metadata.file_modification_time").alias("offset"),
        F.xxhash64("_metadata.file_path").alias(file),
        F.col(f"_metadata.{place}").cast("long").alias(row),
    ]


_OWN = ("bin", "partition", "offset", "time", "key")  # what every record has, whatever its input
_DIGIT = 128  # a byte below is one character of UTF-8, whose code Spark's `ascii` gives


def prepared(
    source: DataFrame | Identified, key: str, operator: Operator, bins: int, time: str | None, *,
    further: Sequence[str] = (),
) -> DataFrame:  # fmt: skip
    """Returns the columns the step needs: bin, partition, offset, time, key, the operator's own, and further ones.

    Behind them are, of files, the columns that order records besides (`impls.store.records.TIES`), and where a record
    can become several rows that are numbered, a place for the row's number, and who sent another query's results. A
    record that a filter has left out and whose place counts has no bin.
    """
    found = source if isinstance(source, Identified) else Identified(source)
    df = found.frame
    columns_read = dict.fromkeys([*operator.columns, *further])
    column = {name: F.col(quoted(column_named(df, name))) for name in (key, time, *columns_read) if name}
    if taken := [c for c in columns_read if c in _OWN]:
        raise UsageError(
            f"The operator reads a column {taken[0]!r}, a name that every record has for another purpose: give the "
            f"input's column another one, as df.withColumnRenamed({taken[0]!r}, 'my_{taken[0]}') does."
        )
    df, order = (df, (PARTITION, OFFSET)) if found.carried else (ordered(df), _ORDER)
    numbered = [F.lit(0).cast("long").alias(ROW)] if found.several else []
    when: Column = column[time].cast("long") if time else F.lit(None).cast("long")
    whole = _is_whole(df.schema[column_named(df, key)].dataType, key)
    if operator.key_type == "long" and not whole:
        raise UsageError(f"{type(operator).__name__} needs an integer key, but column {key!r} is not one.")
    kind = "bigint" if whole else "binary"
    name = column[key].cast(kind)

    def kept(made: Column) -> Column:
        return F.when(F.col(KEPT), made) if found.kept else made

    bin_ = F.expr(operator.bin_sql(f"cast({quoted(column_named(df, key))} as {kind})", bins))
    return df.select(
        kept(bin_).alias("bin"),
        *[F.col(name).cast("long").alias(alias) for name, alias in zip(order, _ORDER, strict=True)],
        kept(when).alias("time"),
        kept(key_bytes(name) if whole and operator.key_type == "binary" else name).alias("key"),
        *[column[name].alias(name) for name in columns_read],
        *[F.col(name) for name in TIES if name in df.columns],
        *numbered,
        *[F.col(name) for name in (PRODUCER, NUMBER) if found.linked],
    )


def _is_whole(kind: DataType, key: str) -> bool:
    """Returns whether a key is an integer and not bytes or text; raises UsageError for a key of another type."""
    if isinstance(kind, IntegralType):
        return True
    if not isinstance(kind, StringType | BinaryType):
        raise UsageError(
            f"The key column {key!r} is of type {kind.simpleString()}; a key is an integer, a string or binary: cast "
            "the column, or group by it with impls.transform_with_state."
        )
    check_collation(kind, f"The key column {key!r}")
    return False


def kind_of_key(df: DataFrame, key: str) -> str:
    """Returns what a column's keys are before they are bytes: long, string or binary."""
    kind = df.schema[column_named(df, key)].dataType
    return "long" if _is_whole(kind, key) else "string" if isinstance(kind, StringType) else "binary"


def value_of(spark: SparkSession, sql: str) -> int:
    """Returns the value of an expression without columns, an integer."""
    return int(spark.sql(f"SELECT {sql}").collect()[0][0])


def readable(frame: DataFrame) -> tuple[str, ...]:
    """Returns the columns of what `prepared` returned that versions of the pipeline may read."""
    return tuple(name for name in frame.columns if name not in {*TIES, PRODUCER, NUMBER})


def key_bytes(key: Column) -> Column:
    """Returns the Spark expression for a 64-bit integer column's 8 big-endian bytes, so that bytes sort as numbers."""
    return F.unhex(F.lpad(F.hex(key.cast("long")), 16, "0"))


def routing_literal(routing: NDArray[np.int32], digits: int) -> bytes:
    """Returns the routing as bytes: of each bin the worker's digits to the base of 128, the highest first.

    As a bytes literal a routing costs 1 to 6 ms of planning; as an array literal 23 ms at 256 bins, 220 ms at 4,096.
    """
    places = [routing // _DIGIT**place % _DIGIT for place in reversed(range(digits))]
    return np.column_stack(places).astype(np.uint8).tobytes()


def worker_column(bin_: str, routing: NDArray[np.int32]) -> Column:
    """Returns the Spark expression for the worker of a bin, which a column names, under a routing.

    It takes 0.3 µs for each digit of a worker's number to the base of 128; `conv` of two bytes took 3 µs. It is made
    from text in one call of the JVM, in 0.5 ms; nine calls took 6 ms of every epoch whose routing is another.
    """
    digits = 1 if routing.max() < _DIGIT else 2 if routing.max() < _DIGIT**2 else 3
    table = f"X'{routing_literal(routing, digits).hex()}'"
    terms = [
        f"ascii(string(substring({table}, {bin_} * {digits} + {place + 1}, 1))) * {_DIGIT ** (digits - 1 - place)}"
        for place in range(digits)
    ]
    return F.expr(" + ".join(terms))


class RoutingColumn:
    """The expression of where a bin's records go, made anew only when the routing is another than last time."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Column] | None = None

    def of(self, routing: NDArray[np.int32]) -> Column:
        """Returns `worker_column` of the column `bin` under a routing."""
        name = routing.tobytes()
        if self._last is None or self._last[0] != name:
            self._last = (name, worker_column("bin", routing))
        return self._last[1]


def workers_column(bin_: str, routing: NDArray[np.int32], standbys: Sequence[tuple[int, int]]) -> Column:
    """Returns the Spark expression for all workers that process a bin: the routed one and those with a standby."""
    columns, left = [worker_column(bin_, routing)], list(standbys)
    nobody = max([int(routing.max()), *(worker for _, worker in standbys)]) + 1
    while left:  # one array column for each bin's first, second, ... standby
        second = np.full(len(routing), nobody, np.int32)
        first = dict(reversed(left))
        second[list(first)] = list(first.values())
        left = [pair for pair in left if first[pair[0]] != pair[1]]
        columns.append(worker_column(bin_, second))
    return F.array_remove(F.array(*columns), F.lit(nobody))


KEY, TIME = "key", "scheduled_us"
_FIELDS = {
    "id": "bigint", "name": "string", "city": "string", "state": "string",
    "reserve": "bigint", "expires": "bigint", "seller": "bigint", "category": "bigint",
    "auction": "bigint", "bidder": "bigint", "price": "bigint",
    "dateTime": "bigint", TIME: "bigint", "channel": "string", "url": "string", "extra": "string",
}  # fmt: skip


def project(df: DataFrame, query: Operator) -> DataFrame:
    """Returns what a query reads of a Kafka DataFrame: partition, offset, `KEY`, `TIME` and the operator's columns.

    Events that the query does not read do not reach the exchange. Raises UsageError for another operator.
    """
    if not isinstance(query, NexmarkQuery):
        raise UsageError(f"{type(query).__name__} is not a NEXMark query.")
    text = F.col("value").cast("string")
    # by text, so that Spark need not parse an event to leave it out; within a JSON string a quote has a backslash
    kind = F.when(text.contains('"bidder":'), BID).when(text.contains('"seller":'), AUCTION).otherwise(PERSON)
    raw = df.select("partition", "offset", "value", kind.alias("kind")).where(F.col("kind").isin(*query.keys))
    schema = ", ".join(f"`{name}` {_FIELDS[name]}" for name in _fields(query, query.columns))
    events = raw.select("*", F.from_json(text, schema).alias("event")).select("*", "event.*")
    return events.where(_read(query)).select(
        "partition", "offset", _key(query).alias(KEY), F.col(TIME), *[F.col(name) for name in query.columns]
    )


def _fields(query: NexmarkQuery, columns: tuple[str, ...]) -> list[str]:
    """Returns the fields to parse; Spark parses every field of the schema, used or not."""
    words = {word for condition in query.where.values() for word in condition.split()}
    return [name for name in _FIELDS if name in {*columns, *query.keys.values(), *words, TIME}]


def _read(query: NexmarkQuery) -> Column:
    """Returns the condition under which a query reads an event of the right kind."""
    parts = [(F.col("kind") == kind) & F.expr(query.where.get(kind, "true")) for kind in query.keys]
    return functools.reduce(operator.or_, parts) if query.where else F.lit(True)


def _key(query: NexmarkQuery) -> Column:
    return F.coalesce(*[F.when(F.col("kind") == kind, F.col(name)) for kind, name in query.keys.items()])
