"""Query 3: who sells in category 10 in Oregon, Idaho and California, as an incremental join."""

from typing import Any, ClassVar

from impls.operators.nexmark.base import AUCTION, PERSON, TimedQuery
from impls.operators.timed import KeyContext, KeyedProcess

__all__ = ["Q3"]


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
                self._emit(context, person, auction)
            context.clear()
        elif (person := context.value()) is None:
            context.append(record["id"])
        else:
            self._emit(context, person, record["id"])

    def _emit(self, context: KeyContext, person: list[str], auction: int) -> None:
        context.emit(dict(zip(self.fields, [*person, auction], strict=True)))
