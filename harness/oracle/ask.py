"""Questions to a checker's tables that every checker asks."""

from collections.abc import Mapping
from typing import Any

__all__ = ["crossed", "examples", "one"]

_CROSSED = """
SELECT m.migration, count(*)
FROM (SELECT r.epoch, b.bin FROM {applied} r JOIN bins b ON r.key = b.key WHERE r.epoch IS NOT NULL) p
ASOF JOIN moves m ON p.bin = m.bin AND p.epoch >= m.epoch
GROUP BY m.migration
"""


def one(db: Any, query: str) -> int:
    """Returns the whole number that a query gives."""
    return int(db.execute(query).fetchone()[0])


def crossed(db: Any, applied: str) -> dict[str, int]:
    """Returns by migration the records that crossed it; the table `applied` has each record's key and epoch."""
    return dict(db.execute(_CROSSED.format(applied=applied)).fetchall())


def examples(db: Any, query: str, orders: Mapping[str, str], kind: str) -> dict[str, dict[str, Any]]:
    """Returns by order's name the first finding of a class (the query's `$class`), without the columns it leaves NULL.

    There is at least one finding of the class.
    """
    return {name: _first(db, query.format(order=order), kind) for name, order in orders.items()}


def _first(db: Any, query: str, kind: str) -> dict[str, Any]:
    found = db.execute(query, {"class": kind})
    columns = [column[0] for column in found.description]
    return {c: value for c, value in zip(columns, found.fetchone(), strict=True) if value is not None}
