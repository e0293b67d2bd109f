"""Queries 0 to 2, 10, 13, 14, 21 and 22: no state; they show what the runtime itself costs."""

import re
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from impls.operators.base import RecordOperator
from impls.operators.nexmark.base import AUCTION, BID, PERSON, NexmarkQuery, id_bytes
from impls.protocol.jsontext import value_to_text
from impls.store.records import Results
from impls.store.state import BinState

_EURO = (89, 100)  # cents per 100 dollar cents
_HOUR_MS = 3_600_000
_CHANNEL = re.compile("&channel_id=([^&]*)")


class _Stateless(NexmarkQuery, RecordOperator):
    """One result, or none, per record."""

    key_type: ClassVar[Literal["binary", "long"]] = "long"

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Answers record by record; see `RecordOperator`."""
        bins, keys = records.column("bin").to_numpy().astype(np.int32), records.column("key").to_pylist()
        rows = records.select(list(self.columns)).to_pylist()
        return Results(bins, [id_bytes(key) for key in keys], [self.answer(row) for row in rows])

    def answer(self, row: dict[str, Any]) -> bytes:
        """Returns the result of a record."""
        names = dict(zip(self.fields, self.columns, strict=True))
        return value_to_text({field: row[column] for field, column in names.items()})


class Q0(_Stateless):
    """Pass-through: every event unchanged.

    Dialect "beam" (all agree).
    """

    dialect = "beam"
    fields = ("value",)
    columns = ("value",)
    keys: ClassVar[dict[int, str]] = {PERSON: "id", AUCTION: "id", BID: "auction"}

    def answer(self, row: dict[str, Any]) -> bytes:
        """Returns the event's own JSON, unchanged."""
        return bytes(row["value"])


class Q1(_Stateless):
    """Currency conversion: every bid with its price in euros, price * 89 / 100 in whole cents, rounded down.

    Dialect "beam" and "megaphone"; "flink-sql" multiplies by the decimal 0.908.
    """

    dialect = "beam"
    fields = columns = ("auction", "bidder", "price", "dateTime")
    keys: ClassVar[dict[int, str]] = {BID: "auction"}

    def answer(self, row: dict[str, Any]) -> bytes:
        """Returns the bid with its price in euros."""
        return super().answer({**row, "price": row["price"] * _EURO[0] // _EURO[1]})


class Q2(_Stateless):
    """Selection: auction and price of bids on auctions whose id is a multiple of 123.

    Dialect "beam" (all but the original draft and RisingWave, which name five auctions).
    """

    dialect = "beam"
    fields = columns = ("auction", "price")
    keys: ClassVar[dict[int, str]] = {BID: "auction"}
    where: ClassVar[dict[int, str]] = {BID: "auction % 123 = 0"}


class _Computed(_Stateless):
    """One result per bid, of which some fields are computed."""

    keys: ClassVar[dict[int, str]] = {BID: "auction"}

    def answer(self, row: dict[str, Any]) -> bytes:
        """Returns a bid's fields, and those computed of it."""
        found = {**row, **self.computed(row)}
        return value_to_text({field: found[field] for field in self.fields})

    def computed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields that are computed."""
        raise NotImplementedError


class Q10(_Computed):
    """Log: every bid with the day and the minute by which its file is chosen.

    Dialect "flink-sql", whose sink writes a folder for each day and minute; here the rows go to the results topic, from
    which whoever wants files has both names. `impls.ForeachBatch` writes such folders itself.
    """

    dialect = "flink-sql"
    fields = ("auction", "bidder", "price", "dateTime", "day", "minute")
    columns = ("auction", "bidder", "price", "dateTime")

    def computed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns day and minute of a bid, UTC."""
        at = datetime.fromtimestamp(row["dateTime"] // 1000, UTC)
        return {"day": f"{at:%Y-%m-%d}", "minute": f"{at:%H:%M}"}


class Q13(_Computed):
    """Side input: every bid with the row of a bounded table that its auction's id names, modulo 10,000.

    Dialect "flink-sql"; the table is Beam's: a number and its text. Each worker has all of it.
    """

    dialect = "flink-sql"
    fields = ("auction", "bidder", "price", "dateTime", "value")
    columns = ("auction", "bidder", "price", "dateTime")
    side: ClassVar[dict[int, str]] = {number: str(number) for number in range(10_000)}

    def computed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the value of a bid's row."""
        return {"value": self.side[row["auction"] % len(self.side)]}


class Q14(_Computed):
    """Calculation: bids whose price in euros is between 1,000,000 and 50,000,000, with the time of day and a count.

    Dialect "flink-sql": a dollar is 0.908 euros, exact, given as text with three digits; `letters` counts the letter c
    in the bid's padding.
    """

    dialect = "flink-sql"
    fields = ("auction", "bidder", "price", "time", "dateTime", "letters")
    columns = ("auction", "bidder", "price", "dateTime", "extra")
    where: ClassVar[dict[int, str]] = {BID: "price * 908 > 1000000000 AND price * 908 < 50000000000"}

    def computed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns price, time of day and number of letters."""
        whole, rest = divmod(row["price"] * 908, 1000)
        hour = row["dateTime"] // _HOUR_MS % 24
        time = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
        return {"price": f"{whole}.{rest:03d}", "time": time, "letters": row["extra"].count("c")}


class Q21(_Computed):
    """Channel ids: a number for each of four channels, what the url says for others; bids without either are left out.

    Dialect "flink-sql"; bids need the profile's channels.
    """

    dialect = "flink-sql"
    fields = ("auction", "bidder", "price", "channel", "id")
    columns = ("auction", "bidder", "price", "channel", "url")
    known: ClassVar[dict[str, str]] = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    where: ClassVar[dict[int, str]] = {
        BID: "lower( channel ) IN ('apple', 'google', 'facebook', 'baidu') OR url LIKE '%&channel_id=%'"
    }

    def computed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the channel's id."""
        said = _CHANNEL.search(row["url"])
        return {"id": self.known.get(row["channel"].lower()) or (said[1] if said else "")}


class Q22(_Computed):
    """Directories: the first three directories of each bid's url.

    Dialect "flink-sql"; bids need the profile's channels.
    """

    dialect = "flink-sql"
    fields = ("auction", "bidder", "price", "channel", "first", "second", "third")
    columns = ("auction", "bidder", "price", "channel", "url")

    def computed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the directories."""
        return dict(zip(("first", "second", "third"), row["url"].split("/")[3:6], strict=True))
