"""Queries 5, 7, 11 and 12: auctions with most bids, the highest bid, bids of each bidder in sessions and windows."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from impls.operators.nexmark.base import BID, SECOND, SecondStage, TimedQuery, columns_of, id_bytes, id_of, window_start
from impls.operators.timed import KeyContext, KeyedProcess
from impls.store.keyed import Keyed
from impls.store.naming import time_bytes


class _Best(SecondStage):
    """The best of a window over all bins, by what each bin's best are: all that have the highest number."""

    key = "start"
    number: ClassVar[str]

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes one of a bin's best."""
        row = [record[name] for name in self.fields]
        number, (most, best) = record[self.number], context.value() or (-1, [])
        if number >= most:
            context.set_value([number, [*best, row] if number == most else [row]])
        context.set_timer(context.time + 1)

    def timer(self, context: KeyContext) -> None:
        """Sends the window's best."""
        for row in sorted(context.value()[1]):
            context.emit(self.result(*row))
        context.set_value(None)


class _MostBids(_Best):
    columns = ("at", "start", "auction", "bids")
    fields = ("start", "auction", "bids")
    number = "bids"


class _HighestBids(_Best):
    columns = ("at", "start", "auction", "bidder", "price", "dateTime")
    fields = ("start", "auction", "bidder", "price", "dateTime")
    number = "price"


class _BestOfBin(TimedQuery):
    """The best of a window of 10 s over bids by auction."""

    dialect = "beam"
    key_type: ClassVar[Literal["binary", "long"]] = "long"
    keys: ClassVar[dict[int, str]] = {BID: "auction"}
    size = 10 * SECOND


class Q5(_BestOfBin):
    """For each sliding window of 10 s every 5 s, all auctions with the most bids in it, over all bins.

    Dialect "beam": [start, start + 10 s), every tie is a result. "flink-sql" has 10 s / 2 s; Megaphone has 60 s / 1 s
    and one maximum per bin, which is not the query's answer.

    Bids are counted per auction in panes of 5 s; a window is two panes. A bin has one map, by pane and auction, of
    which a window is a range. When it ends each bin passes on all auctions that have its highest count. Windows without
    bids have no result.
    """

    second = _MostBids
    fields = _MostBids.fields
    columns = ("dateTime",)
    period = 5 * SECOND

    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Counts bids by (bin, pane, auction)."""
        bins, auctions, times = columns_of(records, "bin", "key", "dateTime")
        rows = [*zip(bins.tolist(), (times - times % self.period).tolist(), auctions.tolist(), strict=True)]
        bids = {(b, time_bytes(pane) + id_bytes(auction)): n for (b, pane, auction), n in sorted(Counter(rows).items())}
        keyed.load_map([b for b, _ in bids], [b""] * len(bids), [field for _, field in bids])
        for (b, field), number in bids.items():
            keyed.set_field(b, b"", field, (keyed.field(b, b"", field) or 0) + number)
        for b, start in dict.fromkeys((b, pane) for b, pane, _ in rows):
            for end in range(start + self.period, start + self.size + 1, self.period):
                keyed.set_timer(b, end, b"")

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Passes the bin's best of a window on; the window's first pane is in no other one to come."""
        counts: Counter[bytes] = Counter()
        end_of_first = time_bytes(time - self.size + self.period)
        for field, number in keyed.fields(bin_, b"", within=(time_bytes(time - self.size), time_bytes(time))):
            counts[field[len(end_of_first) :]] += number
            if field < end_of_first:
                keyed.set_field(bin_, b"", field, None)
        most = max(counts.values())
        for auction in sorted(auction for auction, count in counts.items() if count == most):
            keyed.emit(bin_, auction, self.passed_on(time - 1, time - self.size, id_of(auction), most))


class Q7(_BestOfBin):
    """For each tumbling window of 10 s, all bids with the highest price in it, over all bins.

    Dialect "beam": [start, start + 10 s), every bid that has the price is a result, also equal bids. "flink-sql" lets a
    bid of the last instant count twice (BETWEEN) and has swapped columns; "megaphone" gives the price only.

    Bids are keyed by auction. Each bin keeps its highest bids of a window and passes them on when it ends.
    """

    second = _HighestBids
    fields = _HighestBids.fields
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
            most, before = keyed.value(b, id_bytes(end)) or (-1, [])
            if price >= most:
                keyed.set_value(b, id_bytes(end), [price, [*before, *bids] if price == most else bids])
            keyed.set_timer(b, end, id_bytes(end))

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Passes the bin's highest bids of the window that ends on."""
        price, bids = keyed.value(bin_, key)
        keyed.set_value(bin_, key, None)
        for auction, bidder, at in sorted(bids):
            row = self.passed_on(time - 1, time - self.size, auction, bidder, price, at)
            keyed.emit(bin_, id_bytes(auction), row)


class Q11(TimedQuery, KeyedProcess):
    """For each bidder and session, the number of bids: a session ends when the bidder makes none for 10 s.

    Dialect "beam": a session is [first bid, last bid + 10 s), half-open, so a bid that is exactly 10 s behind the last
    one begins another session; in "flink-sql" it still belongs to it. Bids may come in any order above the watermark.
    """

    dialect = "beam"
    fields = ("bidder", "bids", "start", "end")
    columns = ("dateTime",)
    keys: ClassVar[dict[int, str]] = {BID: "bidder"}
    gap = 10 * SECOND

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Puts a bid into the session that it extends, or joins two by it, or begins one."""
        first, end, bids = context.time, context.time + self.gap, 1
        apart = []
        for session in context.value() or []:
            if session[1] <= first or session[0] >= end:
                apart.append(session)
                continue
            context.cancel_timer(session[1])
            first, end, bids = min(first, session[0]), max(end, session[1]), bids + session[2]
        context.set_timer(end)
        context.set_value([*apart, [first, end, bids]])

    def timer(self, context: KeyContext) -> None:
        """Sends the session that has ended."""
        sessions = context.value() or []
        ended = [session for session in sessions if session[1] <= context.time]
        going = [session for session in sessions if session[1] > context.time]
        context.set_value(going or None)
        for first, end, bids in sorted(ended):
            context.emit(self.result(id_of(context.key), bids, first, end))


class Q12(TimedQuery):
    """For each bidder and tumbling window of 10 s of processing time, the number of bids applied in it.

    Dialect "flink-sql". Processing time is when the epoch of a bid was planned, so every attempt of an epoch
    gives the same windows. Which window a bid is in, nobody else can say: over all windows each bid counts once.
    """

    dialect = "flink-sql"
    key_type: ClassVar[Literal["binary", "long"]] = "long"
    fields = ("bidder", "bids", "start", "end")
    columns = ("dateTime",)
    keys: ClassVar[dict[int, str]] = {BID: "bidder"}
    late = "keep"
    processing = True
    window_ms = 10 * SECOND

    def __init__(self, partitions: int = 0, disorder: int = 0):
        super().__init__(partitions, disorder)
        self.event_time = replace(self.event_time, clock=True)

    def on_records(self, records: pa.Table, keyed: Keyed) -> None:
        """Counts bids of the window that the epoch is in."""
        assert keyed.watermark is not None, "processing time is always known"
        end = window_start(keyed.watermark, self.window_ms) + self.window_ms
        rows, counts = np.unique(np.stack(columns_of(records, "bin", "key")), axis=1, return_counts=True)
        bidders = [(bin_, id_bytes(bidder)) for bin_, bidder in rows.T.tolist()]
        keyed.load([bin_ for bin_, _ in bidders], [key for _, key in bidders])
        for (bin_, key), count in zip(bidders, counts.tolist(), strict=True):
            windows = keyed.value(bin_, key) or {}
            if str(end) not in windows:
                keyed.set_timer(bin_, end, key)
            windows[str(end)] = windows.get(str(end), 0) + count
            keyed.set_value(bin_, key, windows)

    def on_timer(self, bin_: int, time: int, key: bytes, keyed: Keyed) -> None:
        """Sends a bidder's window."""
        windows = keyed.value(bin_, key)
        bids = windows.pop(str(time))
        keyed.set_value(bin_, key, windows or None)
        keyed.emit(bin_, key, self.result(id_of(key), bids, time - self.window_ms, time))
