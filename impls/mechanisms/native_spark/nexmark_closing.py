"""Queries 4, 6 and 9 in Spark's own API: a stateful operator by auction, and for 4 and 6 one behind it.

The first is `transformWithStateInPandas` with a timer per auction. What it sends carries the closing as its event time,
so that the second one has a watermark too: an aggregate over sliding windows (Q4), or a processor with a seller's last
ten prices (Q6). The rules are those of `impls/operators/nexmark/closings.py`: dialect "beam", half-open in time.

Spark calls the timers below the watermark and the one at it (`TimerStateImpl.getExpiredTimers`, Spark 4.3), so an
auction's is set at `expires`. An epoch hands over all closings up to its watermark, and none before that of the epoch
before: what a seller gets in an epoch is later than all it had, and in order once it is sorted.

`Events` reads NEXMark's events for all queries in Spark's own API: kind from their text, event time, watermark.
"""

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

DELAY_MS = 2_000
_FIELDS = (
    "id bigint, name string, city string, state string, reserve bigint, expires bigint, seller bigint, "
    "category bigint, auction bigint, bidder bigint, price bigint, dateTime bigint, channel string, url string, "
    "extra string"
)


@dataclass(frozen=True)
class Events:
    """NEXMark's events as a query in Spark's own API reads them.

    Attributes:
        raw: as Kafka gives them; the column `value` is their JSON.
        delay_ms: how far the watermark stays behind the latest event.
    """

    raw: DataFrame
    delay_ms: int = DELAY_MS

    def of(self, *kinds: str) -> DataFrame:
        """Returns the events of some kinds ("person", "auction", "bid"), with `at` as event time.

        The watermark goes by these events alone. Fields that an event has not are NULL.
        """
        text = F.col("value").cast("string")
        bid, auction = text.contains('"bidder":'), text.contains('"seller":')
        conditions = {"bid": bid, "auction": auction & ~bid, "person": ~bid & ~auction}
        chosen = functools.reduce(operator.or_, [conditions[kind] for kind in kinds])
        parsed = self.raw.where(chosen).select(F.from_json(text, _FIELDS).alias("e")).select("e.*")
        timed = parsed.withColumn("at", F.timestamp_millis("dateTime"))
        return timed.withWatermark("at", f"{self.delay_ms} milliseconds")


AUCTIONS_MAX = 100_000  # in flight: one takes some round trips between Python and the JVM, 2 ms on a busy machine
_AUCTION = "opens bigint, expires bigint, reserve bigint, about bigint, price bigint, won bigint, bidder bigint"
_BID = "price bigint, dateTime bigint, bidder bigint"
_CLOSED = "about bigint, auction bigint, expires bigint, price bigint, won bigint, bidder bigint, at timestamp"
_COLUMNS = ("dateTime", "expires", "reserve", "about", "price", "bidder")  # `expires` is 0 in a bid
Bid = tuple[int, int, int]  # price, time (ms), bidder
_SELLERS = "seller bigint, auction bigint, price bigint"
_NOBODY: Bid = (-1, 0, 0)  # of an auction that nobody has won yet
_SECOND = 1_000
_LAST = 10


def best_bid(auction: tuple[int, int, int], bids: Iterable[Bid]) -> Bid:
    """Returns the winner of the bids that are valid for an auction, (-1, 0, 0) if there is none.

    Args:
        auction: when it opens and when it expires (ms), and its reserve.
        bids: price, time (ms) and bidder of each.
    """
    opens, expires, reserve = auction
    valid = [bid for bid in bids if bid[0] >= reserve and opens <= bid[1] < expires]
    return min(valid, key=lambda bid: (-bid[0], *bid[1:]), default=_NOBODY)


def means_of_last(before: list[int], prices: list[int]) -> list[int]:
    """Returns for each price the mean of it and up to nine before it, rounded half up.

    >>> means_of_last([1], [2, 9])
    [2, 4]
    """
    ends = range(len(before) + 1, len(before) + len(prices) + 1)
    parts = [[*before, *prices][max(0, end - _LAST) : end] for end in ends]
    return [(2 * sum(part) + len(part)) // (2 * len(part)) for part in parts]


class _Closing(StatefulProcessor):
    """Keeps an open auction with its best price, or bids on one that is not known yet."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Takes the handle of the auction's state."""
        self._handle = handle
        self._auction = handle.getValueState("auction", _AUCTION)
        self._early = handle.getListState("early", _BID)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Takes the epoch's events of an auction; it sends nothing."""
        found = [event for part in rows for event in zip(*(part[name].tolist() for name in _COLUMNS), strict=True)]
        bids = [(price, at, bidder) for at, expires, _, _, price, bidder in found if not expires]
        before = self._auction.get()
        auction = before or next(((*event[:4], *_NOBODY) for event in found if event[1]), None)
        if auction is None:
            self._wait(bids)
            return iter(())
        if before is None:
            bids += self._claimed()
            self._handle.registerTimer(auction[1])
        best = best_bid(auction[:3], [*bids, auction[4:]])
        if before is None or best != auction[4:]:
            self._auction.update((*auction[:4], *best))
        return iter(())

    def _claimed(self) -> list[Bid]:
        """Returns the bids that came before their auction, and keeps them no longer."""
        bids = [(int(price), int(at), int(bidder)) for price, at, bidder in self._early.get()]
        if bids:
            self._early.clear()
        return bids

    def _wait(self, bids: list[Bid]) -> None:
        """Keeps bids until no auction that was open at their time can come: to the next full second."""
        self._early.appendList(bids)
        for second in {at // _SECOND for _, at, _ in bids}:
            self._handle.registerTimer((second + 1) * _SECOND)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Sends an auction that closes if it has a winner, or gives up bids that no auction can claim any more."""
        at = expiredTimerInfo.getExpiryTimeInMs()
        auction = self._auction.get()
        if auction is None:
            self._give_up(at)
        elif auction[1] <= at:
            self._auction.clear()
            if auction[4:] != _NOBODY:
                yield _closed(int(key[0]), auction)

    def _give_up(self, at: int) -> None:
        bids = list(self._early.get())
        left = [bid for bid in bids if bid[1] > at]
        if left:
            self._early.put(left)
        elif bids:
            self._early.clear()

    def close(self) -> None:
        """Does nothing."""


def _closed(key: int, auction: tuple[Any, ...]) -> pd.DataFrame:
    _, expires, _, about, price, won, bidder = auction
    row = {"about": about, "auction": key, "expires": expires, "price": price, "won": won, "bidder": bidder}
    return pd.DataFrame([{**row, "at": pd.Timestamp(expires, unit="ms", tz="UTC")}])


class _LastTen(StatefulProcessor):
    """Keeps the prices of a seller's last ten auctions."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Takes the handle of the seller's state."""
        self._last = handle.getListState("last", "price bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Sends a mean for each closing of the epoch, by time and then auction."""
        found = pd.concat(list(rows)).sort_values(["expires", "auction"])
        before = [int(price) for (price,) in self._last.get()]
        prices = found["price"].tolist()
        self._last.put([(price,) for price in [*before, *prices][-_LAST:]])
        yield pd.DataFrame(
            {"seller": int(key[0]), "auction": found["auction"].tolist(), "price": means_of_last(before, prices)}
        )

    def close(self) -> None:
        """Does nothing."""


def _closings(events: Events, about: str) -> DataFrame:
    """Returns the closed auctions that are won, with a field of theirs as `about` and the closing as event time."""
    numbers = [
        F.coalesce(name, F.lit(0)).alias(alias)  # numbers without NULL stay whole in pandas
        for name, alias in zip(("expires", "reserve", about, "price", "bidder"), _COLUMNS[1:], strict=True)
    ]
    read = events.of("auction", "bid").select(F.coalesce("auction", "id").alias("auction"), "dateTime", "at", *numbers)
    return read.groupBy("auction").transformWithStateInPandas(
        statefulProcessor=_Closing(),
        outputStructType=_CLOSED,
        outputMode="Append",
        timeMode="EventTime",
        eventTimeColumnName="at",
    )


def q4(events: Events) -> DataFrame:
    """Returns start (ms), category and mean winning price of each sliding window of 10 s every 5 s."""
    window = F.window("at", "10 seconds", "5 seconds")
    summed = (
        _closings(events, "category").groupBy(window, "about").agg(F.sum("price").alias("sum"), F.count("*").alias("n"))
    )
    mean = F.expr("(2 * sum + n) div (2 * n)").alias("price")
    return summed.select(F.unix_millis(F.col("window.start")).alias("start"), F.col("about").alias("category"), mean)


def q6(events: Events) -> DataFrame:
    """Returns seller, auction and the mean winning price of the seller's last ten for each auction that closes."""
    return (
        _closings(events, "seller")
        .groupBy("about")
        .transformWithStateInPandas(
            statefulProcessor=_LastTen(), outputStructType=_SELLERS, outputMode="Append", timeMode="None"
        )
    )


def q9(events: Events) -> DataFrame:
    """Returns each auction that closes with a winner, and its winning bid."""
    names = {"about": "seller", "won": "dateTime"}
    fields = ("auction", "about", "expires", "bidder", "price", "won")
    return _closings(events, "seller").select(*(F.col(name).alias(names.get(name, name)) for name in fields))
