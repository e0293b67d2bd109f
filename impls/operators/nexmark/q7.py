"""Query 7: the highest bid."""

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from impls.operators.nexmark.base import BID, SECOND, TimedQuery, columns_of, id_bytes
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed

__all__ = ["Q7"]


class Q7(TimedQuery):
    """For each tumbling window of 10 s, all bids with the highest price in it, over all bins.

    Dialect "beam": [start, start + 10 s), every bid that has the price is a result, also equal bids. "flink-sql" lets a
    bid of the last instant count twice (BETWEEN) and has swapped columns; "megaphone" gives the price only.

    Bids are keyed by auction. Each bin keeps its highest bids of a window and contributes them when it ends.
    """

    dialect = "beam"
    fields = ("start", "auction", "bidder", "price", "dateTime")
    columns = ("dateTime", "price", "bidder")
    key_type: ClassVar[Literal["binary", "long"]] = "long"
    keys: ClassVar[dict[int, str]] = {BID: "auction"}
    size = 10 * SECOND

    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Keeps the highest bids by (bin, window)."""
        bins, auctions, times, prices, bidders = columns_of(records, "bin", "key", "dateTime", "price", "bidder")
        ends = times - times % self.size + self.size
        windows, row = np.unique(np.stack([bins, ends]), axis=1, return_inverse=True)
        row = row.reshape(-1)
        highest = np.full(windows.shape[1], -1, np.int64)
        np.maximum.at(highest, row, prices)
        best: list[list[list[int]]] = [[] for _ in highest]
        for i in np.flatnonzero(prices == highest[row]).tolist():
            best[row[i]].append([int(auctions[i]), int(bidders[i]), int(times[i])])
        for (b, end), price, bids in zip(windows.T.tolist(), highest.tolist(), best, strict=True):
            before = keyed.value(b, id_bytes(end))
            keyed.set_value(b, id_bytes(end), self.merge([[price, bids], *([before] if before else [])])[0])
            keyed.set_timer(b, end, id_bytes(end))

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Contributes the bin's highest bids of the window that ends."""
        keyed.contribute(time, key, keyed.value(bin_, key))
        keyed.set_value(bin_, key, None)

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns the highest price with all bids that have it."""
        most = max(value[0] for value in values)
        return [[most, sorted(bid for value in values if value[0] == most for bid in value[1])]]

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's highest bids."""
        price, bids = partial.value
        for auction, bidder, time in bids:
            answer = [partial.time - self.size, auction, bidder, price, time]
            keyed.emit(partial.bin, id_bytes(auction), dict(zip(self.fields, answer, strict=True)))
