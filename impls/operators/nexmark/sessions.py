"""Queries 11 and 12: bids of each bidder in sessions, and in windows of processing time."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from impls.operators.nexmark.base import BID, SECOND, TimedQuery, columns_of, id_bytes, id_of, window_start
from impls.operators.timed import KeyContext, KeyedProcess
from impls.store.keyed import Keyed


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

    Dialect "flink-sql". Processing time is when the epoch, or tick, of a bid was planned, so every attempt of an epoch
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
