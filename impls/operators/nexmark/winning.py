"""Winning bids of closed auctions: what queries 4 and 6 have in common."""

from abc import abstractmethod
from typing import Any, ClassVar

from impls.operators.nexmark.base import AUCTION, BID, SECOND, TimedQuery, window_start
from impls.operators.timed import KeyContext, KeyedProcess

__all__ = ["WinningBids"]


class WinningBids(TimedQuery, KeyedProcess):
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
    def closed(self, context: KeyContext, about: int, price: int) -> None:
        """Takes an auction that has closed at `context.time` with a winning bid; `about` is its field of that name."""

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
                self.closed(context, state[self.about], state["best"][0])


def _take(auction: dict[str, Any], bid: list[int]) -> bool:
    """Lets a bid win if it is valid and better than the best context, and returns whether it does."""
    valid = bid[0] >= auction["reserve"] and auction["dateTime"] <= -bid[1] < auction["expires"]
    wins = valid and ("best" not in auction or bid > auction["best"])
    if wins:
        auction["best"] = bid
    return wins
