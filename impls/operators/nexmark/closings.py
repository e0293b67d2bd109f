"""Queries 4, 6 and 9: mean closing prices, of each category and of each seller's last ten auctions; winning bids."""

from abc import abstractmethod
from typing import Any, ClassVar

from impls.operators.nexmark.base import AUCTION, BID, SECOND, TimedQuery, id_bytes, id_of, mean, window_start
from impls.operators.timed import KeyContext, KeyedProcess
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed


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


class Q4(_WinningBids):
    """For each category and sliding window of 10 s every 5 s, the mean winning price of the auctions closed in it.

    Dialect "beam": reserve, closing and windows as there; a closing counts at the time `expires`, in every window
    [start, start + 10 s) that contains it (Beam dates it 1 ms earlier), and the mean is rounded half up to cents.
    "megaphone" gives a running integer average; "flink-sql" averages the highest bids of auctions still open too.

    Auctions and bids are keyed by auction. The second keying, by category, is a partial of (sum, number) per window and
    category: five numbers per window and worker instead of an exchange of closings.
    """

    dialect = "beam"
    fields = ("start", "category", "price")
    about = "category"
    columns = (*_WinningBids.base, about)
    size, period = 10 * SECOND, 5 * SECOND

    def closed(self, context: KeyContext, about: int, best: list[int]) -> None:
        """Adds a closing to its windows."""
        last = window_start(context.time, self.period)
        for start in range(last, last - self.size, -self.period):
            context.contribute(start + self.size, id_bytes(about), [best[0], 1])

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns the sum of sums and numbers."""
        return [[sum(value[0] for value in values), sum(value[1] for value in values)]]

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's mean."""
        category, start = id_of(partial.key), partial.time - self.size
        keyed.emit(partial.bin, partial.key, self.result(start, category, mean(*partial.value)))


class Q6(_WinningBids):
    """For each auction closed with a winner, the mean winning price of its seller's last ten such auctions.

    Dialect "beam": keyed by seller (Megaphone: by bidder), ten rows (Flink's SQL framing: eleven). "Last" is by closing
    time, then auction id; Beam orders by the winning bid's time, then price. The mean is rounded half up to cents.

    Auctions and bids are keyed by auction, and a bid does not know the seller. The second keying, by seller, is a
    partial per closing: a closing is one event in twenty at most, and the order of a seller's closings needs every
    bin's anyway.
    """

    dialect = "beam"
    fields = ("seller", "auction", "price")
    about = "seller"
    columns = (*_WinningBids.base, about)
    last = 10

    def closed(self, context: KeyContext, about: int, best: list[int]) -> None:
        """Gives a closing to its seller."""
        context.contribute(context.time, id_bytes(about), [id_of(context.key), best[0]])

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns closings of one seller at one time by auction id."""
        return sorted(values)

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Adds a closing to its seller's last ones and sends their mean."""
        auction, price = partial.value
        prices = [*(keyed.value(partial.bin, partial.key, "last") or []), price][-self.last :]
        keyed.set_value(partial.bin, partial.key, prices, "last")
        row = self.result(id_of(partial.key), auction, mean(sum(prices), len(prices)))
        keyed.emit(partial.bin, partial.key, row)


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
