"""Queries 0 to 2: no state; they show what the runtime itself costs."""

import json
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from impls.operators.base import Operator
from impls.operators.nexmark.base import AUCTION, BID, PERSON, NexmarkQuery, id_bytes
from impls.store.records import Results
from impls.store.state import BinState

__all__ = ["Q0", "Q1", "Q2"]

_EURO = (89, 100)  # cents per 100 dollar cents


class _Stateless(NexmarkQuery, Operator):
    """One result, or none, per record."""

    key_type: ClassVar[Literal["binary", "long"]] = "long"

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Answers record by record; see `Operator.apply`."""
        bins, keys = records.column("bin").to_numpy().astype(np.int32), records.column("key").to_pylist()
        rows = records.select(list(self.columns)).to_pylist()
        return Results(bins, [id_bytes(key) for key in keys], [self.answer(row) for row in rows])

    def answer(self, row: dict[str, Any]) -> bytes:
        """Returns the result of a record."""
        names = dict(zip(self.fields, self.columns, strict=True))
        return json.dumps({field: row[column] for field, column in names.items()}, separators=(",", ":")).encode()


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
