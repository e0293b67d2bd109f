"""Queries 17 to 19: what each auction or bidder did in a window, sent when the window ends.

In Flink's SQL these queries have no window: a row is corrected with each bid, and 17 begins anew with each day. A run
of seconds would see no row that is final, so here a tumbling window of 10 s stands for the day, and each row is sent
once.
"""

from abc import abstractmethod
from typing import Any, ClassVar

from impls.operators.nexmark.base import BID, SECOND, TimedQuery, id_of, mean, window_start
from impls.operators.timed import KeyContext, KeyedProcess


def rank_of(price: int) -> int:
    """Returns which of three ranks a price has: below 10,000, below 1,000,000, from there on.

    >>> [rank_of(price) for price in (9_999, 10_000, 999_999, 1_000_000)]
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
        ranks[rank_of(price)] += 1
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
