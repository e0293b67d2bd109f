"""NEXMark's queries in DuckDB's SQL, over tables of all events: what has to be there once the watermark is reached.

The tables person, auction and bid hold one row per event (`dateTime` and `expires` in ms); $watermark is the event time
that the input has reached. Windows are half-open and give results when their end is reached, auctions when `expires`
is. Written from the definitions in the queries' own docstrings (`impls/operators/nexmark`), with none of their code.
"""

from dataclasses import dataclass

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
        of_found: where results cannot be foretold, SQL that makes what can be of them, from the table `raw_found` of
            results (fields as text, their number n, epoch); its columns are those of `sql`, as text, and n and epoch.
        compared: the fields of that, all by default.
        completed: SQL that gives for results when the last event that each needs was due (scheduled_us), with $disorder
            as in `Rules`; `completed_by` are the fields by which it names them.
    """

    reads: tuple[Read, ...]
    fields: dict[str, str]
    sql: str
    of_found: str = ""
    compared: tuple[str, ...] = ()
    completed: str = ""
    completed_by: tuple[str, ...] = ()


_BIGINT, _TEXT = "BIGINT", "VARCHAR"
_BIDS = (Read("bid", "auction"),)
_AUCTIONS = (Read("auction", "id"), Read("bid", "auction"))
_BID = {"auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "dateTime": _BIGINT}
_RANKS = {"total": "true", "rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000",
          "rank3": "price >= 1000000"}  # fmt: skip
_COUNTED = {"bids": "count(*)", "bidders": "count(DISTINCT bidder)", "auctions": "count(DISTINCT auction)"}
_STATISTICS = {f"{rank}_{what}": _BIGINT for what in _COUNTED for rank in _RANKS}
_NUMBERS = ", ".join(f"{count} FILTER ({rank})" for count in _COUNTED.values() for rank in _RANKS.values())
_NAMED = "lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_matches(url, '(&|^)channel_id=([^&]*)')"
_IN_WINDOW = f"""(SELECT *, "dateTime" - "dateTime" % {10 * _S} AS start FROM bid
                  WHERE "dateTime" - "dateTime" % {10 * _S} + {10 * _S} <= $watermark)"""

# An auction is open in [dateTime, expires); of the bids in that time not below the reserve the highest wins.
_VALID_BIDS = """auction a JOIN bid b
      ON b.auction = a.id AND b."dateTime" >= a."dateTime" AND b."dateTime" < a.expires AND b.price >= a.reserve
    WHERE a.expires <= $watermark"""
_CLOSED = f"""
WITH closed AS (
    SELECT a.id, a.seller, a.category, a.expires, max(b.price) AS price FROM {_VALID_BIDS} GROUP BY ALL)
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
        completed=f"""
        SELECT start, max(reached) AS scheduled_us
        FROM (SELECT w.start, r."partition", min(r.scheduled_us) AS reached
              FROM (SELECT DISTINCT CAST(start AS BIGINT) AS start FROM expected) w
              JOIN read r ON r."dateTime" >= w.start + {10 * _S} + $disorder GROUP BY ALL)
        GROUP BY start""",
        completed_by=("start",),
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
    ),
    "q8": Definition(
        (Read("person", "id"), Read("auction", "seller")),
        {"start": _BIGINT, "id": _BIGINT, "name": _TEXT, "auction": _BIGINT, "reserve": _BIGINT},
        f"""
        SELECT p."dateTime" - p."dateTime" % {10 * _S} AS start, p.id, p.name, a.id, a.reserve
        FROM person p JOIN auction a
          ON a.seller = p.id AND p."dateTime" // {10 * _S} = a."dateTime" // {10 * _S}""",
        completed="""
        SELECT a.id AS auction, greatest(p.scheduled_us, a.scheduled_us) AS scheduled_us
        FROM person p JOIN auction a ON a.seller = p.id""",
        completed_by=("auction",),
    ),
    "q9": Definition(
        _AUCTIONS,
        {"auction": _BIGINT, "seller": _BIGINT, "expires": _BIGINT, "bidder": _BIGINT, "price": _BIGINT,
         "dateTime": _BIGINT},
        f"""
        SELECT a.id, a.seller, a.expires, b.bidder, b.price, b."dateTime" FROM {_VALID_BIDS}
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b."dateTime", b.bidder) = 1""",
    ),
    "q10": Definition(
        _BIDS, {**_BID, "day": _TEXT, "minute": _TEXT},
        """
        SELECT auction, bidder, price, "dateTime", strftime(make_timestamp("dateTime" * 1000), '%Y-%m-%d'),
               strftime(make_timestamp("dateTime" * 1000), '%H:%M') FROM bid""",
    ),
    "q11": Definition(
        (Read("bid", "bidder"),), {"bidder": _BIGINT, "bids": _BIGINT, "start": _BIGINT, "end": _BIGINT},
        f"""
        WITH parted AS (
            SELECT bidder, "dateTime",
                   coalesce("dateTime" - lag("dateTime") OVER bids >= {10 * _S}, true) AS begins
            FROM bid WINDOW bids AS (PARTITION BY bidder ORDER BY "dateTime")),
        numbered AS (
            SELECT bidder, "dateTime", count(*) FILTER (begins) OVER (
                PARTITION BY bidder ORDER BY "dateTime" RANGE UNBOUNDED PRECEDING) AS session FROM parted)
        SELECT bidder, count(*), min("dateTime"), max("dateTime") + {10 * _S} FROM numbered GROUP BY bidder, session
        HAVING max("dateTime") + {10 * _S} <= $watermark""",
    ),
    "q12": Definition(
        (Read("bid", "bidder"),), {"bidder": _BIGINT, "bids": _BIGINT, "start": _BIGINT, "end": _BIGINT},
        "SELECT bidder, count(*) FROM bid GROUP BY bidder",
        of_found=f"""
        SELECT bidder, CAST(sum(bids::BIGINT * n) AS VARCHAR) AS bids, 1 AS n, min(epoch) AS epoch FROM raw_found
        WHERE start::BIGINT % {10 * _S} = 0 AND "end"::BIGINT = start::BIGINT + {10 * _S} GROUP BY bidder""",
        compared=("bidder", "bids"),
    ),
    "q13": Definition(
        _BIDS, {**_BID, "value": _TEXT},
        'SELECT auction, bidder, price, "dateTime", CAST(auction % 10000 AS VARCHAR) FROM bid',
    ),
    "q14": Definition(
        (Read("bid", "auction", "0.908 * price > 1000000 AND 0.908 * price < 50000000"),),
        {"auction": _BIGINT, "bidder": _BIGINT, "price": _TEXT, "time": _TEXT, "dateTime": _BIGINT, "letters": _BIGINT},
        """
        SELECT auction, bidder, CAST(CAST(price AS DECIMAL(20, 0)) * 0.908 AS VARCHAR),
               CASE WHEN hour BETWEEN 8 AND 18 THEN 'day' WHEN hour <= 6 OR hour >= 20 THEN 'night' ELSE 'other' END,
               "dateTime", length(extra) - length(replace(extra, 'c', ''))
        FROM (SELECT *, "dateTime" // 3600000 % 24 AS hour FROM bid)
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    ),
    "q15": Definition(
        _BIDS, {"start": _BIGINT, **_STATISTICS}, f"SELECT start, {_NUMBERS} FROM {_IN_WINDOW} GROUP BY start",
    ),
    "q16": Definition(
        _BIDS, {"start": _BIGINT, "channel": _TEXT, "minute": _TEXT, **_STATISTICS},
        f"""
        SELECT start, channel, strftime(make_timestamp(max("dateTime") * 1000), '%H:%M'), {_NUMBERS}
        FROM {_IN_WINDOW} GROUP BY start, channel""",
    ),
    "q17": Definition(
        _BIDS,
        dict.fromkeys(
            ("start", "auction", "total", "rank1", "rank2", "rank3", "least", "most", "mean", "sum"), _BIGINT
        ),
        f"""
        SELECT start, auction, {", ".join(f"count(*) FILTER ({rank})" for rank in _RANKS.values())}, min(price),
               max(price), (2 * sum(price) + count(*)) // (2 * count(*)), sum(price)
        FROM {_IN_WINDOW} GROUP BY start, auction""",
    ),
    "q18": Definition(
        (Read("bid", "bidder"),), {"start": _BIGINT, **_BID},
        f"""
        SELECT start, auction, bidder, price, "dateTime" FROM {_IN_WINDOW} QUALIFY row_number() OVER (
            PARTITION BY start, bidder, auction ORDER BY "dateTime" DESC, price DESC) = 1""",
    ),
    "q19": Definition(
        _BIDS, {"start": _BIGINT, **_BID, "rank": _BIGINT},
        f"""
        SELECT start, auction, bidder, price, "dateTime", row_number() OVER (
            PARTITION BY start, auction ORDER BY price DESC, "dateTime", bidder) AS rank
        FROM {_IN_WINDOW} QUALIFY rank <= 10""",
    ),
    "q20": Definition(
        _AUCTIONS, {**_BID, "seller": _BIGINT, "reserve": _BIGINT, "expires": _BIGINT},
        """
        SELECT b.auction, b.bidder, b.price, b."dateTime", a.seller, a.reserve, a.expires
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    ),
    "q21": Definition(
        (Read("bid", "auction", _NAMED),),
        {"auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "channel": _TEXT, "id": _TEXT},
        f"""
        SELECT auction, bidder, price, channel,
               CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
               WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END
        FROM bid WHERE {_NAMED}""",
    ),
    "q22": Definition(
        _BIDS,
        {"auction": _BIGINT, "bidder": _BIGINT, "price": _BIGINT, "channel": _TEXT, "first": _TEXT, "second": _TEXT,
         "third": _TEXT},
        """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
               split_part(url, '/', 6) FROM bid""",
    ),
}  # fmt: skip
