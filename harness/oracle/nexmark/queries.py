"""Queries 0 to 8 in DuckDB's SQL, over tables of all events: what has to be there once the watermark is reached.

The tables person, auction and bid hold one row per event (`dateTime` and `expires` in ms); $watermark is the event time
that the input has reached. Windows are half-open and give results when their end is reached, auctions when `expires`
is. Written from the definitions in the queries' own docstrings (`impls/operators/nexmark`), with none of their code.
"""

from dataclasses import dataclass

__all__ = ["DEFINITIONS", "Definition", "Read"]

_S = 1_000


@dataclass(frozen=True)
class Read:
    """Events of one kind that a query reads: the field that is their key, and an SQL condition."""

    table: str
    key: str
    where: str = "true"


@dataclass(frozen=True)
class Definition:
    """A query.

    Attributes:
        reads: what it reads; the watermark goes by these events alone.
        fields: names and SQL types of a result.
        sql: gives the results, in the order of `fields`.
        keyed: whether results come from the bin of their key; those of windows over all bins come from the window's.
    """

    reads: tuple[Read, ...]
    fields: dict[str, str]
    sql: str
    keyed: bool = True


_BIGINT, _TEXT = "BIGINT", "VARCHAR"
_BIDS = (Read("bid", "auction"),)
_AUCTIONS = (Read("auction", "id"), Read("bid", "auction"))

# An auction is open in [dateTime, expires); of the bids in that time not below the reserve the highest wins.
_CLOSED = """
WITH closed AS (
    SELECT a.id, a.seller, a.category, a.expires, max(b.price) AS price
    FROM auction a JOIN bid b
      ON b.auction = a.id AND b."dateTime" >= a."dateTime" AND b."dateTime" < a.expires AND b.price >= a.reserve
    WHERE a.expires <= $watermark GROUP BY ALL)
"""

DEFINITIONS: dict[str, Definition] = {
    "q0": Definition(
        (Read("person", "id"), Read("auction", "id"), Read("bid", "auction")), {"value": _TEXT},
        "SELECT value FROM event",
    ),
    "q1": Definition(
        _BIDS, {"auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "dateTime": _BIGINT},
        'SELECT auction, bidder, price * 89 // 100, "dateTime" FROM bid',
    ),
    "q2": Definition(
        (Read("bid", "auction", "auction % 123 = 0"),), {"auction": _BIGINT, "price": _BIGINT},
        "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    ),
    "q3": Definition(
        (Read("person", "id", "state IN ('OR', 'ID', 'CA')"), Read("auction", "seller", "category = 10")),
        {"name": _TEXT, "city": _TEXT, "state": _TEXT, "auction": _BIGINT},
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    "q4": Definition(
        _AUCTIONS, {"start": _BIGINT, "category": _BIGINT, "price": _BIGINT},
        _CLOSED + f"""
        SELECT start, category, (2 * sum(price) + count(*)) // (2 * count(*)) AS price
        FROM (SELECT *, unnest([expires - expires % {5 * _S}, expires - expires % {5 * _S} - {5 * _S}]) AS start
              FROM closed)
        WHERE start + {10 * _S} <= $watermark GROUP BY start, category""",
    ),
    "q5": Definition(
        _BIDS, {"start": _BIGINT, "auction": _BIGINT, "bids": _BIGINT},
        f"""
        WITH counted AS (
            SELECT start, auction, count(*) AS bids
            FROM (SELECT auction, unnest(["dateTime" - "dateTime" % {5 * _S},
                                          "dateTime" - "dateTime" % {5 * _S} - {5 * _S}]) AS start FROM bid)
            WHERE start + {10 * _S} <= $watermark GROUP BY start, auction)
        SELECT start, auction, bids FROM counted QUALIFY bids = max(bids) OVER (PARTITION BY start)""",
        keyed=False,
    ),
    "q6": Definition(
        _AUCTIONS, {"seller": _BIGINT, "auction": _BIGINT, "price": _BIGINT},
        _CLOSED + """
        SELECT seller, id, (2 * sum(price) OVER last + count(*) OVER last) // (2 * count(*) OVER last) FROM closed
        WINDOW last AS (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)""",
    ),
    "q7": Definition(
        _BIDS, {"start": _BIGINT, "auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "dateTime": _BIGINT},
        f"""
        SELECT "dateTime" - "dateTime" % {10 * _S} AS start, auction, bidder, price, "dateTime" FROM bid
        WHERE start + {10 * _S} <= $watermark QUALIFY price = max(price) OVER (PARTITION BY start)""",
        keyed=False,
    ),
    "q8": Definition(
        (Read("person", "id"), Read("auction", "seller")),
        {"start": _BIGINT, "id": _BIGINT, "name": _TEXT, "auction": _BIGINT, "reserve": _BIGINT},
        f"""
        SELECT p."dateTime" - p."dateTime" % {10 * _S} AS start, p.id, p.name, a.id, a.reserve
        FROM person p JOIN auction a
          ON a.seller = p.id AND p."dateTime" // {10 * _S} = a."dateTime" // {10 * _S}""",
    ),
}  # fmt: skip
