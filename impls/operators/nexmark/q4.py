"""Query 4: the average closing price of each category."""

from typing import Any

from impls.operators.nexmark.base import SECOND, id_bytes, id_of, mean, window_start
from impls.operators.nexmark.winning import WinningBids
from impls.operators.timed import KeyContext
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed

__all__ = ["Q4"]


class Q4(WinningBids):
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
    columns = (*WinningBids.base, about)
    size, period = 10 * SECOND, 5 * SECOND

    def closed(self, context: KeyContext, about: int, price: int) -> None:
        """Adds a closing to its windows."""
        last = window_start(context.time, self.period)
        for start in range(last, last - self.size, -self.period):
            context.contribute(start + self.size, id_bytes(about), [price, 1])

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns the sum of sums and numbers."""
        return [[sum(value[0] for value in values), sum(value[1] for value in values)]]

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's mean."""
        category, start = id_of(partial.key), partial.time - self.size
        answer = [start, category, mean(*partial.value)]
        keyed.emit(partial.bin, partial.key, dict(zip(self.fields, answer, strict=True)))
