"""Queries 4, 6 and 9: mean closing prices, of each category and of each seller's last ten auctions; winning bids."""

from abc import abstractmethod
from typing import Any, ClassVar

from impls.operators.nexmark.base import (
    AUCTION,
    BID,
    SECOND,
    SecondStage,
    TimedQuery,
    id_bytes,
    id_of,
    mean,
    window_start,
)
from impls.operators.nexmark.perwindow import Windowed
from impls.operators.timed import KeyContext, KeyedProcess


class _WinningBids(TimedQuery, KeyedProcess):
    """When an auction closes, calls closed() with its winning bid, if there is one.

    An auction is open in [dateTime, expires), half-open; event time counts, not arrival. Of the bids in that time that
    are at least the reserve the highest wins, of equal ones the earliest, of these the one of the lowest bidder id.
    That is Beam's rule except that Beam lets a bid count that was made before its auction opened (its window fn merges
    a bid by `start < expires` alone), if the bid has not been given up by then.

    A bid whose auction is not known waits until no auction that was open at the bid's time can come any more: to the
    next full second of the watermark.
    """

    keys: ClassVar[dict[int, str]] = {AUCTION: "id", BID: "auction"}
    about: ClassVar[str]
    base: ClassVar[tuple[str, ...]] = ("kind", "dateTime", "expires", "reserve", "price", "bidder")

    @abstractmethod
    def closed(self, context: KeyContext, about: int, best: list[int]) -> None:
        """Takes an auction that has closed at `context.time`.

        Args:
            context: of the auction.
            about: its field of that name.
            best: of the winning bid the price, and the time and the bidder's id, both negative.
        """

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes an auction or a bid."""
        state = context.value() or {"early": []}
        if record["kind"] == AUCTION:
            opened = {name: record[name] for name in ("dateTime", "expires", "reserve", self.about)}
            for bid in state.get("early", ()):
                _take(opened, bid)
            context.set_timer(opened["expires"])
            context.set_value(opened)
            return
        bid = [record["price"], -record["dateTime"], -record["bidder"]]  # the greatest is the best
        if "early" in state:
            state["early"].append(bid)
            context.set_timer(window_start(context.time, SECOND) + SECOND)
        elif not _take(state, bid):
            return
        context.set_value(state)

    def timer(self, context: KeyContext) -> None:
        """Closes the auction, or gives up bids that no auction can claim any more."""
        state = context.value()
        if state is not None and "early" in state:
            left = [bid for bid in state["early"] if -bid[1] >= context.time]
            context.set_value({"early": left} if left else None)
        elif state is not None and state["expires"] <= context.time:
            context.set_value(None)
            if "best" in state:
                self.closed(context, state[self.about], state["best"])


def _take(auction: dict[str, Any], bid: list[int]) -> bool:
    """Lets a bid win if it is valid and better than the best context, and returns whether it does."""
    valid = bid[0] >= auction["reserve"] and auction["dateTime"] <= -bid[1] < auction["expires"]
    wins = valid and ("best" not in auction or bid > auction["best"])
    if wins:
        auction["best"] = bid
    return wins


class _MeanOfCategory(SecondStage, Windowed):
    """For each category and window, the mean of the closing prices in it."""

    columns = ("at", "category", "price")
    key = "category"
    fields = ("start", "category", "price")
    size, period = 10 * SECOND, 5 * SECOND

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Adds a closing."""
        total, number = state or (0, 0)
        return [total + record["price"], number + 1]

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Sends a window's mean."""
        context.emit(self.result(start, id_of(context.key), mean(*state)))


class Q4(_WinningBids):
    """For each category and sliding window of 10 s every 5 s, the mean winning price of the auctions closed in it.

    Dialect "beam": reserve, closing and windows as there; a closing counts at the time `expires`, in every window
    [start, start + 10 s) that contains it (Beam dates it 1 ms earlier), and the mean is rounded half up to cents.
    "megaphone" gives a running integer average; "flink-sql" averages the highest bids of auctions still open too.

    Auctions and bids are keyed by auction, closings by category.
    """

    dialect = "beam"
    second = _MeanOfCategory
    fields = _MeanOfCategory.fields
    about = "category"
    columns = (*_WinningBids.base, about)

    def closed(self, context: KeyContext, about: int, best: list[int]) -> None:
        """Passes a closing on."""
        context.emit(self.passed_on(context.time, about, best[0]))


class _MeanOfLast(SecondStage):
    """For each closing, the mean price of its seller's last ten.

    Closings wait for those of the same time: several auctions of a seller may close at once, in any order.
    """

    columns = ("at", "seller", "auction", "price")
    key = "seller"
    fields = ("seller", "auction", "price")
    last = 10

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Keeps a closing until all of its time have come."""
        closings = context.field(id_bytes(context.time)) or []
        context.set_field(id_bytes(context.time), [*closings, [record["auction"], record["price"]]])
        context.set_timer(context.time)

    def timer(self, context: KeyContext) -> None:
        """Adds closings to their seller's last ones and sends their means."""
        prices = context.value("last") or []
        for auction, price in sorted(context.field(id_bytes(context.time))):
            prices = [*prices, price][-self.last :]
            context.emit(self.result(id_of(context.key), auction, mean(sum(prices), len(prices))))
        context.set_field(id_bytes(context.time), None)
        context.set_value(prices, "last")


class Q6(_WinningBids):
    """For each auction closed with a winner, the mean winning price of its seller's last ten such auctions.

    Dialect "beam": keyed by seller (Megaphone: by bidder), ten rows (Flink's SQL framing: eleven). "Last" is by closing
    time, then auction id; Beam orders by the winning bid's time, then price. The mean is rounded half up to cents.

    Auctions and bids are keyed by auction, as a bid does not know the seller; closings by seller.
    """

    dialect = "beam"
    second = _MeanOfLast
    fields = _MeanOfLast.fields
    about = "seller"
    columns = (*_WinningBids.base, about)

    def closed(self, context: KeyContext, about: int, best: list[int]) -> None:
        """Passes a closing on."""
        context.emit(self.passed_on(context.time, about, id_of(context.key), best[0]))


class Q9(_WinningBids):
    """For each auction closed with a winner, the winning bid.

    Dialect "beam": reserve and closing as there. "flink-sql" ranks the bids of auctions that are still open too, takes
    a bid of the last instant, and knows no reserve.
    """

    dialect = "beam"
    fields = ("auction", "seller", "expires", "bidder", "price", "dateTime")
    about = "seller"
    columns = (*_WinningBids.base, about)

    def closed(self, context: KeyContext, about: int, best: list[int]) -> None:
        """Sends the winning bid."""
        price, time, bidder = best
        context.emit(self.result(id_of(context.key), about, context.time, -bidder, price, -time))
