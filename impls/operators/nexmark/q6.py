"""Query 6: the average closing price of each seller's last ten auctions."""

from typing import Any

from impls.operators.nexmark.base import id_bytes, id_of, mean
from impls.operators.nexmark.winning import WinningBids
from impls.operators.timed import KeyContext
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed

__all__ = ["Q6"]


class Q6(WinningBids):
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
    columns = (*WinningBids.base, about)
    last = 10

    def closed(self, context: KeyContext, about: int, price: int) -> None:
        """Gives a closing to its seller."""
        context.contribute(context.time, id_bytes(about), [id_of(context.key), price])

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns closings of one seller at one time by auction id."""
        return sorted(values)

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Adds a closing to its seller's last ones and sends their mean."""
        auction, price = partial.value
        prices = [*(keyed.value(partial.bin, partial.key, "last") or []), price][-self.last :]
        keyed.set_value(partial.bin, partial.key, prices, "last")
        answer = [id_of(partial.key), auction, mean(sum(prices), len(prices))]
        keyed.emit(partial.bin, partial.key, dict(zip(self.fields, answer, strict=True)))
