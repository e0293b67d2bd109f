"""Queries 15 to 19: what a window had in all, by channel, by auction or by bidder, sent when the window ends.

In Flink's SQL 17 to 19 have no window: a row is corrected with each bid, and 17 begins anew with each day. A run
of seconds would see no row that is final, so here a tumbling window of 10 s stands for the day, and each row is sent
once.

Distinct numbers (15, 16) are exact. Bids are keyed by auction, so that numbers of auctions add up in the second stage;
bidders do not, and each auction gives the ids of its own.
"""

import json
from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar

from impls.operators.nexmark.base import BID, SECOND, SecondStage, TimedQuery, id_bytes, id_of, mean, window_start
from impls.operators.timed import KeyContext, KeyedProcess


def _rank_of(price: int) -> int:
    """Returns which of three ranks a price has: below 10,000, below 1,000,000, from there on.

    >>> [_rank_of(price) for price in (9_999, 10_000, 999_999, 1_000_000)]
    [0, 1, 1, 2]
    """
    return (price >= 10_000) + (price >= 1_000_000)


class Windowed(KeyedProcess):
    """One state for each key and window of event time: add() takes a record into it, closed() answers at the end.

    Attributes:
        size, period: windows are [start, start + size) for every multiple `start` of the period, ms.
    """

    size: ClassVar[int]
    period: ClassVar[int]

    @abstractmethod
    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Returns a window's state, None at first, with a record taken in."""

    @abstractmethod
    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Answers for a window that has ended."""

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes a record into its windows."""
        last = window_start(context.time, self.period)
        windows = context.value() or {}  # by end, which JSON turns into text
        for end in range(last + self.size, last, -self.period):
            if str(end) not in windows:
                context.set_timer(end)
            windows[str(end)] = self.add(windows.get(str(end)), record)
        context.set_value(windows)

    def timer(self, context: KeyContext) -> None:
        """Answers for a window and forgets it."""
        windows = context.value()
        state = windows.pop(str(context.time))
        context.set_value(windows or None)
        self.closed(context, context.time - self.size, state)


class PerWindow(TimedQuery, Windowed):
    """A query on tumbling windows of 10 s."""

    size = period = 10 * SECOND


class Q17(PerWindow):
    """For each auction and window, its bids: how many in all and of each rank, and their lowest, mean, total price.

    Dialect "flink-sql" with windows of 10 s for days; the mean is rounded half up to cents.
    """

    dialect = "flink-sql"
    fields = ("start", "auction", "total", "rank1", "rank2", "rank3", "least", "most", "mean", "sum")
    columns = ("dateTime", "price")
    keys: ClassVar[dict[int, str]] = {BID: "auction"}

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Counts a bid."""
        price = record["price"]
        ranks, least, most, total = state or [[0, 0, 0], price, price, 0]
        ranks[_rank_of(price)] += 1
        return [ranks, min(least, price), max(most, price), total + price]

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Sends an auction's row."""
        ranks, least, most, total = state
        bids = sum(ranks)
        context.emit(self.result(start, id_of(context.key), bids, *ranks, least, most, mean(total, bids), total))


class Q18(PerWindow):
    """For each bidder, auction and window, the bidder's last bid: what is left when repeats are dropped.

    Dialect "flink-sql" (`ROW_NUMBER() ... ORDER BY dateTime DESC` is 1) with windows of 10 s; of bids of one instant
    the highest is the last.
    """

    dialect = "flink-sql"
    fields = ("start", "auction", "bidder", "price", "dateTime")
    columns = ("dateTime", "auction", "price")
    keys: ClassVar[dict[int, str]] = {BID: "bidder"}

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Keeps the later bid of each auction."""
        bids, auction = state or {}, str(record["auction"])
        bids[auction] = max(bids.get(auction, [-1, -1]), [record["dateTime"], record["price"]])
        return bids

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Sends a bidder's last bids."""
        for auction, (time, price) in sorted(state.items()):
            context.emit(self.result(start, int(auction), id_of(context.key), price, time))


class Q19(PerWindow):
    """For each auction and window, the ten highest bids with their ranks from 1 on.

    Dialect "flink-sql" (`ROW_NUMBER() ... ORDER BY price DESC` to 10) with windows of 10 s; of equal prices the earlier
    bid comes first, then that of the lower bidder.
    """

    dialect = "flink-sql"
    fields = ("start", "auction", "bidder", "price", "dateTime", "rank")
    columns = ("dateTime", "price", "bidder")
    keys: ClassVar[dict[int, str]] = {BID: "auction"}
    most = 10

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Keeps a bid that is among the ten highest."""
        return sorted([*(state or []), [-record["price"], record["dateTime"], record["bidder"]]])[: self.most]

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Sends an auction's highest bids."""
        for rank, (price, time, bidder) in enumerate(state, 1):
            context.emit(self.result(start, id_of(context.key), bidder, -price, time, rank))


_RANKED = ("rank1", "rank2", "rank3")
_NUMBERS = tuple(f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in ("total", *_RANKED))
_MINUTE_MS = 60_000


class _Numbers(SecondStage):
    """The numbers of a window, or of one and a channel, by what each auction had in it.

    A bidder is a field of the group's map, whose bits say in which ranks, as a window has thousands of them.
    """

    columns = ("at", "group", "latest", *_RANKED, "bidders")
    types: ClassVar[dict[str, str]] = {"group": "string", "bidders": "string"}
    key = "group"
    size = 10 * SECOND

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Adds what an auction had."""
        latest, bids, auctions = context.value() or (0, [0, 0, 0], [0, 0, 0, 0])
        added = [record[rank] for rank in _RANKED]
        for rank, bidders in enumerate(json.loads(record["bidders"])):
            for bidder in map(id_bytes, bidders):
                context.set_field(bidder, (context.field(bidder, "bidders") or 0) | 1 << rank, "bidders")
        bids, auctions = _sums([bids, added]), _sums([auctions, [1, *(int(number > 0) for number in added)]])
        context.set_value([max(latest, record["latest"]), bids, auctions])
        context.set_timer(context.time + 1)

    def timer(self, context: KeyContext) -> None:
        """Sends a group's row."""
        latest, bids, auctions = context.value()
        ranks = [mask for _, mask in context.fields("bidders")]
        bidders = [len(ranks), *(sum(mask >> rank & 1 for mask in ranks) for rank in range(len(_RANKED)))]
        context.clear_fields("bidders")
        context.set_value(None)
        names = self.named(context.key.decode(), latest)
        context.emit(self.result(context.time - self.size, *names, sum(bids), *bids, *bidders, *auctions))

    def named(self, group: str, latest: int) -> tuple[str, ...]:
        """Returns the values that a row has between the window's start and the numbers."""
        return ()


def _sums(rows: Any) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


class _Statistics(PerWindow):
    """The state of an auction's window: by channel, [last time, number of bids of each rank, bidders of each rank]."""

    dialect = "flink-sql"
    keys: ClassVar[dict[int, str]] = {BID: "auction"}

    def channel(self, record: dict[str, Any]) -> str:
        """Returns the channel that a bid counts in."""
        return ""

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Counts a bid."""
        channels, name, rank = state or {}, self.channel(record), _rank_of(record["price"])
        latest, bids, bidders = channels.get(name) or [0, [0, 0, 0], [[], [], []]]
        bids[rank] += 1
        if record["bidder"] not in bidders[rank]:
            bidders[rank].append(record["bidder"])
        channels[name] = [max(latest, record["dateTime"]), bids, bidders]
        return channels

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Passes on what an auction adds to each channel of a window."""
        for name, (latest, bids, bidders) in state.items():
            group = f"{start} {name}"
            ids = json.dumps([sorted(rank) for rank in bidders])
            context.emit(self.passed_on(context.time - 1, group, latest, *bids, ids))


class _NumbersOfAll(_Numbers):
    fields = ("start", *_NUMBERS)


class Q15(_Statistics):
    """For each window, the number of bids, of different bidders and of different auctions: in all and by rank of price.

    Dialect "flink-sql" with windows of 10 s for days.
    """

    second = _NumbersOfAll
    fields = _NumbersOfAll.fields
    columns = ("dateTime", "price", "bidder")


class _NumbersOfChannel(_Numbers):
    fields = ("start", "channel", "minute", *_NUMBERS)

    def named(self, group: str, latest: int) -> tuple[str, ...]:
        """Returns the channel and the minute of its last bid."""
        return group.partition(" ")[2], datetime.fromtimestamp(latest // _MINUTE_MS * 60, UTC).strftime("%H:%M")


class Q16(_Statistics):
    """For each window and channel, the numbers of query 15, and the minute of the channel's last bid.

    Dialect "flink-sql" with windows of 10 s for days; bids need the profile's channels.
    """

    second = _NumbersOfChannel
    fields = _NumbersOfChannel.fields
    columns = ("dateTime", "price", "bidder", "channel")

    def channel(self, record: dict[str, Any]) -> str:
        """Returns the bid's channel."""
        return str(record["channel"])
