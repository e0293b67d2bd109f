"""NEXMark queries in Spark's own DataFrame API, the twins of `impls/operators/nexmark` where Spark can express them.

Windows close `DELAY_MS` after their end, in event time, and later where events of one partition are out of order:
Spark's watermark is the highest one of all partitions less a delay, and what is below it is dropped. Two partitions are
read at their own pace, so a delay of 0 would drop events.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.errors import UsageError
from impls.mechanisms.native_spark.nexmark_closing import AUCTIONS_MAX, DELAY_MS, Events, q4, q6, q9

_WINDOW, _SLIDE = "10 seconds", "5 seconds"
# Spark joins sessions that touch, and closes one when the watermark is at its end. Times are whole milliseconds, so a
# gap of a microsecond less makes sessions half-open and closes none earlier.
_GAP = "9999999 microseconds"
_BID = ("auction", "bidder", "price", "dateTime")
_CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def _start(window: Column) -> Column:
    return F.unix_millis(window["start"])


def _q0(events: Events) -> DataFrame:
    return events.raw.select(F.col("value").cast("string").alias("value"))


def _q1(events: Events) -> DataFrame:
    price = F.expr("price * 89 div 100").alias("price")
    return events.of("bid").select("auction", "bidder", price, "dateTime")


def _q2(events: Events) -> DataFrame:
    return events.of("bid").where("auction % 123 = 0").select("auction", "price")


def _q3(events: Events) -> DataFrame:
    persons = events.of("person").where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    auctions = events.of("auction").where("category = 10")
    auctions = auctions.select(F.col("id").alias("auction"), "seller")
    return auctions.join(persons, auctions.seller == persons.id).select("name", "city", "state", "auction")


def _q5(events: Events) -> DataFrame:
    counted = events.of("bid").groupBy(F.window("at", _WINDOW, _SLIDE), "auction").agg(F.count("*").alias("bids"))
    listed = counted.groupBy("window").agg(F.collect_list(F.struct("auction", "bids")).alias("all"))
    most = F.array_max(F.transform("all", lambda one: one["bids"]))
    best = listed.select(F.col("window"), F.explode(F.filter("all", lambda one: one["bids"] == most)).alias("one"))
    return best.select(_start(F.col("window")).alias("start"), "one.auction", "one.bids")


def _q7(events: Events) -> DataFrame:
    bid = F.struct("auction", "bidder", "price", "dateTime")
    priced = events.of("bid").groupBy(F.window("at", _WINDOW), "price").agg(F.collect_list(bid).alias("bids"))
    best = priced.groupBy("window").agg(F.max_by("bids", "price").alias("bids"))
    one = best.select(_start(F.col("window")).alias("start"), F.explode("bids").alias("bid"))
    return one.select("start", "bid.auction", "bid.bidder", "bid.price", "bid.dateTime")


def _q8(events: Events) -> DataFrame:
    persons = events.of("person").select(F.window("at", _WINDOW).alias("w"), "id", "name", "at")
    auctions = events.of("auction")
    auctions = auctions.select(
        F.window("at", _WINDOW).alias("v"), F.col("id").alias("auction"), "seller", "reserve", F.col("at").alias("made")
    )
    both = auctions.join(persons, (F.col("seller") == F.col("id")) & (F.col("v") == F.col("w")))
    return both.select(_start(F.col("w")).alias("start"), "id", "name", "auction", "reserve")


def _q10(events: Events) -> DataFrame:
    parts = [F.date_format("at", form).alias(name) for name, form in (("day", "yyyy-MM-dd"), ("minute", "HH:mm"))]
    return events.of("bid").select(*_BID, *parts)


def _q11(events: Events) -> DataFrame:
    session = F.session_window("at", _GAP).alias("w")
    counted = events.of("bid").groupBy(session, "bidder").agg(F.count("*").alias("bids"))
    end = (F.unix_millis("w.end") + 1).alias("end")
    return counted.select("bidder", "bids", _start(F.col("w")).alias("start"), end)


def _q13(events: Events) -> DataFrame:
    side = events.raw.sparkSession.range(10_000).select(
        F.col("id").alias("side"), F.col("id").cast("string").alias("value")
    )
    return events.of("bid").join(side, F.col("auction") % 10_000 == F.col("side")).select(*_BID, "value")


def _q14(events: Events) -> DataFrame:
    euros, hour = F.col("price") * 908, F.hour("at")
    time = F.when(hour.between(8, 18), "day").when((hour <= 6) | (hour >= 20), "night").otherwise("other")
    text = F.format_string("%d.%03d", F.expr("price * 908 div 1000"), euros % 1000)
    letters = F.length("extra") - F.length(F.replace("extra", F.lit("c"), F.lit("")))
    bids = events.of("bid").where((euros > 1_000_000_000) & (euros < 50_000_000_000))
    return bids.select(
        "auction", "bidder", text.alias("price"), time.alias("time"), "dateTime", letters.alias("letters")
    )


def _ranks() -> dict[str, Column]:
    price = F.col("price")
    return {
        "total": F.lit(True), "rank1": price < 10_000, "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }  # fmt: skip


def _statistics() -> list[Column]:
    counts = [F.count_if(where).alias(f"{rank}_bids") for rank, where in _ranks().items()]
    sets = [
        F.size(F.collect_set(F.when(where, F.col(one)))).alias(f"{rank}_{one}s")  # streams count no distinct values
        for one in ("bidder", "auction") for rank, where in _ranks().items()
    ]  # fmt: skip
    return counts + sets


def _q15(events: Events) -> DataFrame:
    found = events.of("bid").groupBy(F.window("at", _WINDOW).alias("w")).agg(*_statistics())
    return found.select(_start(F.col("w")).alias("start"), *found.columns[1:])


def _q16(events: Events) -> DataFrame:
    last = F.max("at").alias("last")
    found = events.of("bid").groupBy(F.window("at", _WINDOW).alias("w"), "channel").agg(last, *_statistics())
    minute = F.date_format("last", "HH:mm").alias("minute")
    return found.select(_start(F.col("w")).alias("start"), "channel", minute, *found.columns[3:])


def _q17(events: Events) -> DataFrame:
    counts = [F.count_if(where).alias(rank) for rank, where in _ranks().items()]
    total, number = F.sum("price"), F.count("*")
    measures = [F.min("price").alias("least"), F.max("price").alias("most"), total.alias("sum"), number.alias("n")]
    found = events.of("bid").groupBy(F.window("at", _WINDOW).alias("w"), "auction").agg(*counts, *measures)
    mean = F.expr("(2 * sum + n) div (2 * n)").alias("mean")
    return found.select(_start(F.col("w")).alias("start"), "auction", *_ranks(), "least", "most", mean, "sum")


def _q18(events: Events) -> DataFrame:
    last = F.max(F.struct("dateTime", "price")).alias("last")
    found = events.of("bid").groupBy(F.window("at", _WINDOW).alias("w"), "bidder", "auction").agg(last)
    return found.select(_start(F.col("w")).alias("start"), "auction", "bidder", "last.price", "last.dateTime")


def _q19(events: Events) -> DataFrame:
    bid = F.struct((-F.col("price")).alias("below"), "dateTime", "bidder")
    ranked = (
        events.of("bid").groupBy(F.window("at", _WINDOW).alias("w"), "auction").agg(F.collect_list(bid).alias("bids"))
    )
    ten = F.posexplode(F.slice(F.array_sort("bids"), 1, 10)).alias("place", "bid")
    ranked = ranked.select(_start(F.col("w")).alias("start"), "auction", ten)
    price, rank = (-F.col("bid.below")).alias("price"), (F.col("place") + 1).alias("rank")
    return ranked.select("start", "auction", "bid.bidder", price, "bid.dateTime", rank)


def _q20(events: Events) -> DataFrame:
    bids = events.of("bid").select(*_BID)
    auctions = events.of("auction").where("category = 10").select("id", "seller", "reserve", "expires")
    return bids.join(auctions, bids.auction == auctions.id).select(*_BID, "seller", "reserve", "expires")


def _q21(events: Events) -> DataFrame:
    known = F.create_map(*[F.lit(text) for pair in _CHANNELS.items() for text in pair])[F.lower("channel")]
    named = F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    found = events.of("bid").select("auction", "bidder", "price", "channel", F.coalesce(known, named).alias("id"))
    return found.where("id != ''")


def _q22(events: Events) -> DataFrame:
    parts = F.split("url", "/")
    named = [parts[place].alias(name) for place, name in enumerate(("first", "second", "third"), 3)]
    return events.of("bid").select("auction", "bidder", "price", "channel", *named)


TWINS: dict[str, Callable[[Events], DataFrame]] = {
    "q0": _q0, "q1": _q1, "q2": _q2, "q3": _q3, "q4": q4, "q5": _q5, "q6": q6, "q7": _q7, "q8": _q8, "q9": q9,
    "q10": _q10, "q11": _q11, "q13": _q13, "q14": _q14, "q15": _q15, "q16": _q16, "q17": _q17, "q18": _q18,
    "q19": _q19, "q20": _q20, "q21": _q21, "q22": _q22,
}  # fmt: skip


def missing_twin(query: str, auctions: int) -> str:
    """Returns why a query cannot be run in Spark's own API, "" if it can.

    Args:
        query: its name.
        auctions: how many are in flight at a time.
    """
    if query not in TWINS:
        return f"{query} has no twin in Spark's own API"
    if query in ("q4", "q6", "q9") and auctions > AUCTIONS_MAX:
        return f"{query} in Spark's own API takes at most {AUCTIONS_MAX:,} auctions in flight, not {auctions:,}"
    return ""


def answers(raw: DataFrame, query: str, disorder_ms: int = 0) -> DataFrame:
    """Returns a query's results as JSON text in the column `value`, for Spark's Kafka sink in append mode.

    Args:
        raw: events as Kafka gives them; `value` is their JSON.
        query: its name.
        disorder_ms: how far events of one partition may be out of order; the watermark stays as much further behind.

    Raises:
        UsageError: the query has no twin.
    """
    if query not in TWINS:
        raise UsageError(f"{query} has no twin in Spark's own API: there are {', '.join(TWINS)}.")
    found = TWINS[query](Events(raw, DELAY_MS + disorder_ms))
    return found if query == "q0" else found.select(F.to_json(F.struct(*found.columns)).alias("value"))
