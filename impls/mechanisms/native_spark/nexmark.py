"""NEXMark queries in Spark's own DataFrame API, the twins of `impls/operators/nexmark` where Spark can express them.

Windows close `DELAY_MS` after their end, in event time: Spark's watermark is the highest one of all partitions less
a delay, and what is below it is dropped. Two partitions are read at their own pace, so a delay of 0 would drop events.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.errors import UsageError
from impls.mechanisms.native_spark.nexmark_closing import AUCTIONS_MAX, DELAY_MS, events, q4, q6

__all__ = ["DELAY_MS", "TWINS", "answers", "missing_twin"]

_WINDOW, _SLIDE = "10 seconds", "5 seconds"


def _start(window: Column) -> Column:
    return F.unix_millis(window["start"])


def _q0(raw: DataFrame) -> DataFrame:
    return raw.select(F.col("value").cast("string").alias("value"))


def _q1(raw: DataFrame) -> DataFrame:
    price = F.expr("price * 89 div 100").alias("price")
    return events(raw, "bid").select("auction", "bidder", price, "dateTime")


def _q2(raw: DataFrame) -> DataFrame:
    return events(raw, "bid").where("auction % 123 = 0").select("auction", "price")


def _q3(raw: DataFrame) -> DataFrame:
    persons = events(raw, "person").where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    auctions = events(raw, "auction").where("category = 10")
    auctions = auctions.select(F.col("id").alias("auction"), "seller")
    return auctions.join(persons, auctions.seller == persons.id).select("name", "city", "state", "auction")


def _q5(raw: DataFrame) -> DataFrame:
    counted = events(raw, "bid").groupBy(F.window("at", _WINDOW, _SLIDE), "auction").agg(F.count("*").alias("bids"))
    listed = counted.groupBy("window").agg(F.collect_list(F.struct("auction", "bids")).alias("all"))
    most = F.array_max(F.transform("all", lambda one: one["bids"]))
    best = listed.select(F.col("window"), F.explode(F.filter("all", lambda one: one["bids"] == most)).alias("one"))
    return best.select(_start(F.col("window")).alias("start"), "one.auction", "one.bids")


def _q7(raw: DataFrame) -> DataFrame:
    bid = F.struct("auction", "bidder", "price", "dateTime")
    priced = events(raw, "bid").groupBy(F.window("at", _WINDOW), "price").agg(F.collect_list(bid).alias("bids"))
    best = priced.groupBy("window").agg(F.max_by("bids", "price").alias("bids"))
    one = best.select(_start(F.col("window")).alias("start"), F.explode("bids").alias("bid"))
    return one.select("start", "bid.auction", "bid.bidder", "bid.price", "bid.dateTime")


def _q8(raw: DataFrame) -> DataFrame:
    persons = events(raw, "person").select(F.window("at", _WINDOW).alias("w"), "id", "name", "at")
    auctions = events(raw, "auction")
    auctions = auctions.select(
        F.window("at", _WINDOW).alias("v"), F.col("id").alias("auction"), "seller", "reserve", F.col("at").alias("made")
    )
    both = auctions.join(persons, (F.col("seller") == F.col("id")) & (F.col("v") == F.col("w")))
    return both.select(_start(F.col("w")).alias("start"), "id", "name", "auction", "reserve")


TWINS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "q0": _q0, "q1": _q1, "q2": _q2, "q3": _q3, "q4": q4, "q5": _q5, "q6": q6, "q7": _q7, "q8": _q8,
}  # fmt: skip


def missing_twin(query: str, auctions: int) -> str:
    """Returns why a query cannot be run in Spark's own API, "" if it can.

    Args:
        query: q0 to q8.
        auctions: how many are in flight at a time.
    """
    if query not in TWINS:
        return f"{query} has no twin in Spark's own API"
    if query in ("q4", "q6") and auctions > AUCTIONS_MAX:
        return f"{query} in Spark's own API takes at most {AUCTIONS_MAX:,} auctions in flight, not {auctions:,}"
    return ""


def answers(raw: DataFrame, query: str) -> DataFrame:
    """Returns a query's results as JSON text in the column `value`, for Spark's Kafka sink in append mode.

    Args:
        raw: events as Kafka gives them; `value` is their JSON.
        query: q0 to q8.

    Raises:
        UsageError: the query has no twin.
    """
    if query not in TWINS:
        raise UsageError(f"{query} has no twin in Spark's own API: there are {', '.join(TWINS)}.")
    found = TWINS[query](raw)
    return found if query == "q0" else found.select(F.to_json(F.struct(*found.columns)).alias("value"))
