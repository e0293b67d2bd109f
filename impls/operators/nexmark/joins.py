"""Queries 3, 8 and 20: sellers of category 10 in three states, new persons with an auction, bids of category 10."""

from typing import Any, ClassVar

from impls.operators.nexmark.base import AUCTION, BID, PERSON, SECOND, TimedQuery, id_of, window_start
from impls.operators.timed import KeyContext, KeyedProcess


class Q3(TimedQuery, KeyedProcess):
    """Every auction of category 10 with its seller, if that person lives in OR, ID or CA.

    Dialect "flink-sql": an unbounded join. "beam" forgets a person after 600 s; Megaphone's migrateable Q3 keeps only
    the last auction of a seller who is not known yet, here all of them wait. Persons and auctions may come in any
    order, however late; a person's id is unique.
    """

    dialect = "flink-sql"
    fields = ("name", "city", "state", "auction")
    columns = ("kind", "dateTime", "id", "name", "city", "state")
    keys: ClassVar[dict[int, str]] = {PERSON: "id", AUCTION: "seller"}
    where: ClassVar[dict[int, str]] = {PERSON: "state IN ('OR', 'ID', 'CA')", AUCTION: "category = 10"}
    late = "keep"

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes a person or an auction."""
        if record["kind"] == PERSON:
            person = [record["name"], record["city"], record["state"]]
            context.set_value(person)
            for auction in context.items():
                context.emit(self.result(*person, auction))
            context.clear()
        elif (person := context.value()) is None:
            context.append(record["id"])
        else:
            context.emit(self.result(*person, record["id"]))


class Q8(TimedQuery, KeyedProcess):
    """For each tumbling window of 10 s, the new persons who opened an auction in it: one result per auction.

    Dialect "beam": aligned windows [start, start + 10 s), one row per auction; window and auction id are given besides
    Beam's (id, name, reserve). "flink-sql" gives each person once; Megaphone counts 12 h from the registration, and its
    code reads persons out of the stream of auctions.

    A row is sent as soon as both sides are there, in whatever order they come; the end of the window only deletes what
    was kept. A person's id is unique.
    """

    dialect = "beam"
    fields = ("start", "id", "name", "auction", "reserve")
    columns = ("kind", "dateTime", "id", "name", "reserve")
    keys: ClassVar[dict[int, str]] = {PERSON: "id", AUCTION: "seller"}
    size = 10 * SECOND

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes a person or an auction."""
        start = window_start(context.time, self.size)
        windows = (
            context.value() or {}
        )  # by start, which JSON turns into text: the name, or the auctions that wait for it
        if str(start) not in windows:
            context.set_timer(start + self.size)
        waiting = windows.get(str(start), [])
        if record["kind"] == PERSON:
            for auction in waiting if isinstance(waiting, list) else ():
                self._emit(context, start, record["name"], auction)
            windows[str(start)] = record["name"]
        elif isinstance(waiting, str):
            self._emit(context, start, waiting, [record["id"], record["reserve"]])
        else:
            windows[str(start)] = [*waiting, [record["id"], record["reserve"]]]
        context.set_value(windows)

    def timer(self, context: KeyContext) -> None:
        """Forgets a window."""
        windows = context.value()
        del windows[str(context.time - self.size)]
        context.set_value(windows or None)

    def _emit(self, context: KeyContext, start: int, name: str, auction: list[int]) -> None:
        context.emit(self.result(start, id_of(context.key), name, *auction))


class Q20(TimedQuery, KeyedProcess):
    """Every bid on an auction of category 10 with seller, reserve and end of the auction.

    Dialect "flink-sql": an unbounded join. Of an auction of another category only that is kept, so that bids on it need
    not wait. Auctions and bids may come in any order, however late.
    """

    dialect = "flink-sql"
    fields = ("auction", "bidder", "price", "dateTime", "seller", "reserve", "expires")
    columns = ("kind", "dateTime", "bidder", "price", "seller", "reserve", "expires", "category")
    keys: ClassVar[dict[int, str]] = {AUCTION: "id", BID: "auction"}
    late = "keep"

    def record(self, record: dict[str, Any], context: KeyContext) -> None:
        """Takes an auction or a bid."""
        about = context.value()  # [] of an auction of another category
        if record["kind"] == AUCTION:
            wanted = record["category"] == 10
            about = [record[name] for name in ("seller", "reserve", "expires")] if wanted else []
            context.set_value(about)
            for bid in context.items():
                self._emit(context, bid, about)
            context.clear()
            return
        bid = [record["bidder"], record["price"], record["dateTime"]]
        if about is None:
            context.append(bid)
        else:
            self._emit(context, bid, about)

    def _emit(self, context: KeyContext, bid: list[int], about: list[int]) -> None:
        if about:
            context.emit(self.result(id_of(context.key), *bid, *about))
