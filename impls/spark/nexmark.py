"""The input of the queries: NEXMark events as JSON in Kafka, parsed, filtered and keyed by Spark before the exchange.

An event is one flat JSON object with Beam's field names and the time at which it was due to be sent, `scheduled_us`
(µs since the Unix epoch); `dateTime` and `expires` are event time in ms. Only bids have a bidder, and only auctions a
seller; what has neither is a person:

    {"id":1000,"name":"Peter Jones","city":"Boise","state":"ID", ... ,"dateTime":1436918400000,"scheduled_us":...}
    {"id":1000,"itemName":"...","initialBid":90,"reserve":190,"expires":1436918400166,"seller":1000,"category":10, ...}
    {"auction":1000,"bidder":1001,"price":120,"dateTime":1436918400002,"scheduled_us":...}
"""

import functools
import operator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.errors import UsageError
from impls.operators.base import Operator
from impls.operators.nexmark.base import AUCTION, BID, PERSON, NexmarkQuery

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
