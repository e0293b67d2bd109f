"""Queries 5 and 7: the auctions with most bids, and the highest bid."""

from collections import Counter
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from impls.operators.nexmark.base import BID, SECOND, TimedQuery, columns_of, id_bytes, id_of
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed


class _Highest(TimedQuery):
    """The highest of a window of 10 s over bids by auction: partials are [number, list of all that have it]."""

    dialect = "beam"
    key_type: ClassVar[Literal["binary", "long"]] = "long"
    keys: ClassVar[dict[int, str]] = {BID: "auction"}
    size = 10 * SECOND

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns the highest number with all that have it."""
        most = max(value[0] for value in values)
        return [[most, sorted(one for value in values if value[0] == most for one in value[1])]]


class Q5(_Highest):
    """For each sliding window of 10 s every 5 s, all auctions with the most bids in it, over all bins.

    Dialect "beam": [start, start + 10 s), every tie is a result. "flink-sql" has 10 s / 2 s; Megaphone has 60 s / 1 s
    and one maximum per bin, which is not the query's answer.

    Bids are counted per auction in panes of 5 s (a map per bin and pane); a window is two panes. When it ends each bin
    contributes its highest count with all auctions that have it. Windows without bids have no result.
    """

    fields = ("start", "auction", "bids")
    columns = ("dateTime",)
    period = 5 * SECOND

    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Counts bids by (bin, pane, auction)."""
        bins, auctions, times = columns_of(records, "bin", "key", "dateTime")
        rows, counts = np.unique(np.stack([bins, times - times % self.period, auctions]), axis=1, return_counts=True)
        fields = [(b, id_bytes(pane), id_bytes(auction)) for b, pane, auction in rows.T.tolist()]
        keyed.load_map(
            [b for b, _, _ in fields], [pane for _, pane, _ in fields], [auction for _, _, auction in fields]
        )
        for (b, pane, auction), count in zip(fields, counts.tolist(), strict=True):
            keyed.set_field(b, pane, auction, (keyed.field(b, pane, auction) or 0) + count)
        for b, start in dict.fromkeys((b, id_of(pane)) for b, pane, _ in fields):
            for end in range(start + self.period, start + self.size + 1, self.period):
                keyed.set_timer(b, end, b"")

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Contributes the bin's highest count of the window that ends; its first pane is in no other window to come."""
        counts: Counter[bytes] = Counter()
        for start in range(time - self.size, time, self.period):
            counts.update(dict(keyed.fields(bin_, id_bytes(start))))
        keyed.clear_fields(bin_, id_bytes(time - self.size))
        most = max(counts.values())
        auctions = sorted(id_of(auction) for auction, count in counts.items() if count == most)
        keyed.contribute(time, id_bytes(time), [most, auctions])

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's auctions."""
        most, auctions = partial.value
        for auction in auctions:
            keyed.emit(partial.bin, id_bytes(auction), self.result(partial.time - self.size, auction, most))


class Q7(_Highest):
    """For each tumbling window of 10 s, all bids with the highest price in it, over all bins.

    Dialect "beam": [start, start + 10 s), every bid that has the price is a result, also equal bids. "flink-sql" lets a
    bid of the last instant count twice (BETWEEN) and has swapped columns; "megaphone" gives the price only.

    Bids are keyed by auction. Each bin keeps its highest bids of a window and contributes them when it ends.
    """

    fields = ("start", "auction", "bidder", "price", "dateTime")
    columns = ("dateTime", "price", "bidder")

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

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's highest bids."""
        price, bids = partial.value
        for auction, bidder, time in bids:
            row = self.result(partial.time - self.size, auction, bidder, price, time)
            keyed.emit(partial.bin, id_bytes(auction), row)
