"""Queries 15 and 16: how many bids, bidders and auctions a window had, by rank of price, in all or by channel.

Distinct numbers are exact. Bids are keyed by auction, so that numbers of auctions add up over bins; bidders do not, and
each bin gives the ids of its own.
"""

from datetime import UTC, datetime
from typing import Any, ClassVar

from impls.operators.nexmark.base import BID, id_bytes
from impls.operators.nexmark.perwindow import PerWindow, rank_of
from impls.operators.timed import KeyContext
from impls.protocol.eventtime import Partial
from impls.store.keyed import Keyed

_NUMBERS = tuple(
    f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")
)
_MINUTE_MS = 60_000


class _Statistics(PerWindow):
    """The state of an auction's window: by group, [last time, number of bids of each rank, bidders of each rank]."""

    dialect = "flink-sql"
    keys: ClassVar[dict[int, str]] = {BID: "auction"}

    def group(self, record: dict[str, Any]) -> str:
        """Returns the group that a bid counts in."""
        return ""

    def add(self, state: Any, record: dict[str, Any]) -> Any:
        """Counts a bid."""
        groups, name, rank = state or {}, self.group(record), rank_of(record["price"])
        last, bids, bidders = groups.get(name) or [0, [0, 0, 0], [[], [], []]]
        bids[rank] += 1
        if record["bidder"] not in bidders[rank]:
            bidders[rank].append(record["bidder"])
        groups[name] = [max(last, record["dateTime"]), bids, bidders]
        return groups

    def closed(self, context: KeyContext, start: int, state: Any) -> None:
        """Contributes what an auction adds to each group of a window."""
        for name, (last, bids, bidders) in state.items():
            auctions = [1, *(int(number > 0) for number in bids)]
            context.contribute(context.time, name.encode() or id_bytes(start), [last, bids, bidders, auctions])

    def merge(self, values: list[Any]) -> list[Any]:
        """Returns sums of bids and auctions, and the bidders of all."""
        lasts, bids, bidders, auctions = zip(*values, strict=True)
        union = [sorted(set().union(*ranks)) for ranks in zip(*bidders, strict=True)]
        return [[max(lasts), _sums(bids), union, _sums(auctions)]]

    def numbers(self, partial: Partial) -> list[int]:
        """Returns the numbers of a group in the order of `_NUMBERS`."""
        _, bids, bidders, auctions = partial.value
        return [sum(bids), *bids, len(set().union(*bidders)), *map(len, bidders), *auctions]


def _sums(rows: Any) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


class Q15(_Statistics):
    """For each window, the number of bids, of different bidders and of different auctions: in all and by rank of price.

    Dialect "flink-sql" with windows of 10 s for days.
    """

    fields = ("start", *_NUMBERS)
    columns = ("dateTime", "price", "bidder")

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a window's row."""
        keyed.emit(partial.bin, partial.key, self.result(partial.time - self.size, *self.numbers(partial)))


class Q16(_Statistics):
    """For each window and channel, the numbers of query 15, and the minute of the channel's last bid.

    Dialect "flink-sql" with windows of 10 s for days; bids need the profile's channels.
    """

    fields = ("start", "channel", "minute", *_NUMBERS)
    columns = ("dateTime", "price", "bidder", "channel")

    def group(self, record: dict[str, Any]) -> str:
        """Returns the bid's channel."""
        return str(record["channel"])

    def on_merged(self, partial: Partial, keyed: Keyed) -> None:
        """Sends a channel's row."""
        minute = datetime.fromtimestamp(partial.value[0] // _MINUTE_MS * 60, UTC).strftime("%H:%M")
        row = self.result(partial.time - self.size, partial.key.decode(), minute, *self.numbers(partial))
        keyed.emit(partial.bin, partial.key, row)
