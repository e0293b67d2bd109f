"""Queries 15 to 19: what a window had in all, by channel, by auction or by bidder, sent when the window ends.

In Flink's SQL 17 to 19 have no window: a row is corrected with each bid, and 17 begins anew with each day. A run
of seconds would see no row that is final, so here a tumbling window of 10 s stands for the day, and each row is sent
once.

Distinct numbers (15, 16) are exact. Bids are keyed by auction, so that numbers of auctions add up over bins; bidders do
not, and each bin gives the ids of its own.
"""

from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar

from impls.operators.nexmark.base import BID, SECOND, TimedQuery, id_bytes, id_of, mean, window_start
from impls.operators.timed import KeyContext, KeyedProcess
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed


def _rank_of(price: int) -> int:
    """Returns which of three ranks a price has: below 10,000, below 1,000,000, from there on.

    >>> [_rank_of(price) for price in (9_999, 10_000, 999_999, 1_000_000)]
    [0, 1, 1, 2]
    """
    return (price >= 10_000) + (price >= 1_000_000)


class PerWindow(TimedQuery, KeyedProcess):
    """One state for each key and tumbling window of 10 s: add() takes a record into it, closed() answers at the end."""

    size = 10 * SECOND

    @abstractmethod
    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Returns a window's state, None at first, with a record taken in."""

    @abstractmethod
    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Answers for a window that has ended."""

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes a record into its window."""
        end = window_start(context.time, self.size) + self.size
        windows = context.value() or {}  # by end, which JSON turns into text
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


_NUMBERS = tuple(
    f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")
)
_MINUTE_MS = 60_000


class _Statistics(PerWindow):
    """The state of an auction's window: by group, [last time, number of bids of each rank, bidders of each rank]."""

    dialect = "flink-sql"
    keys: ClassVar[dict[int, str]] = {BID: "auction"}

    def group(self, record: dict[str, Any]) -> str:
        """Returns the group that a bid counts in."""
        return ""

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Counts a bid."""
        groups, name, rank = state or {}, self.group(record), _rank_of(record["price"])
        last, bids, bidders = groups.get(name) or [0, [0, 0, 0], [[], [], []]]
        bids[rank] += 1
        if record["bidder"] not in bidders[rank]:
            bidders[rank].append(record["bidder"])
        groups[name] = [max(last, record["dateTime"]), bids, bidders]
        return groups

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Contributes what an auction adds to each group of a window."""
        for name, (last, bids, bidders) in state.items():
            auctions = [1, *(int(number > 0) for number in bids)]
            context.contribute(context.time, name.encode() or id_bytes(start), [last, bids, bidders, auctions])

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns sums of bids and auctions, and the bidders of all."""
        lasts, bids, bidders, auctions = zip(*values, strict=True)
        union = [sorted(set().union(*ranks)) for ranks in zip(*bidders, strict=True)]
        return [[max(lasts), _sums(bids), union, _sums(auctions)]]

    def numbers(self, value: Any) -> list[int]:
        """Returns the numbers that a group's merged value holds, in the order of `_NUMBERS`."""
        _, bids, bidders, auctions = value
        return [sum(bids), *bids, len(set().union(*bidders)), *map(len, bidders), *auctions]


def _sums(rows: Any) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


class Q15(_Statistics):
    """For each window, the number of bids, of different bidders and of different auctions: in all and by rank of price.

    Dialect "flink-sql" with windows of 10 s for days.
    """

    fields = ("start", *_NUMBERS)
    columns = ("dateTime", "price", "bidder")

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's row."""
        keyed.emit(partial.bin, partial.key, self.result(partial.time - self.size, *self.numbers(partial.value)))


class Q16(_Statistics):
    """For each window and channel, the numbers of query 15, and the minute of the channel's last bid.

    Dialect "flink-sql" with windows of 10 s for days; bids need the profile's channels.
    """

    fields = ("start", "channel", "minute", *_NUMBERS)
    columns = ("dateTime", "price", "bidder", "channel")

    def group(self, record: dict[str, Any]) -> str:
        """Returns the bid's channel."""
        return str(record["channel"])

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a channel's row."""
        value = partial.value
        minute = datetime.fromtimestamp(value[0] // _MINUTE_MS * 60, UTC).strftime("%H:%M")
        row = self.result(partial.time - self.size, partial.key.decode(), minute, *self.numbers(value))
        keyed.emit(partial.bin, partial.key, row)
