"""What a checker found, and what every checker asks of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CLASSES = ("lost", "doubled", "wrong", "out_of_order")

# A number at or below the highest one before it, of the same worker in the same partition, is a repeat.
NUMBERED = """
CREATE TABLE numbered AS
SELECT *, number > coalesce(max(number) OVER earlier, -1) AS accepted
FROM (SELECT *, CAST(epoch AS HUGEINT) * 4294967296 + "index" AS number FROM results)
WINDOW earlier AS (
    PARTITION BY worker, "partition" ORDER BY "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""

_CROSSED = """
SELECT m.migration, count(*)
FROM (SELECT r.epoch, b.bin FROM {applied} r JOIN bins b ON r.key = b.key WHERE r.epoch IS NOT NULL) p
ASOF JOIN moves m ON p.bin = m.bin AND p.epoch >= m.epoch
GROUP BY m.migration
"""


@dataclass(frozen=True, slots=True)
class Differences:
    """What the checker found.

    Attributes:
        totals: number of findings by class of `CLASSES`.
        examples: of each class with findings the first, the worst (by difference of counts) and the last one.
        records: input records.
        results: results after repeats were dropped.
        repeats: repeats dropped.
        crossed: by migration, records of moved bins in an epoch from their move on.
        waited: records that were queued.
        longest_wait: epochs that a record was queued at most.
    """

    totals: dict[str, int]
    examples: dict[str, dict[str, dict[str, Any]]]
    records: int
    results: int
    repeats: int
    crossed: dict[str, int] = field(default_factory=dict)
    waited: int = 0
    longest_wait: int = 0

    @classmethod
    def of(
        cls, db: Any, number: str, example: str, orders: Mapping[str, str], *, records: int, raw: int, applied: str
    ) -> "Differences":
        """Returns what a checker's tables `finding` and `numbered` say.

        Args:
            db: the checker's database.
            number: SQL for the number of findings in rows of `finding`.
            example: query for the first finding of `$class` in an `{order}`; columns that are NULL are left out.
            orders: SQL of that order by the example's name.
            records: input records.
            raw: results, repeats included.
            applied: the table with key and epoch of each record, to count those that crossed a migration.
        """
        totals = f"SELECT class, CAST({number} AS BIGINT) FROM finding GROUP BY class"
        found = dict(db.execute(totals).fetchall())
        results = int(db.execute("SELECT count(*) FROM numbered WHERE accepted").fetchone()[0])
        return cls(
            totals={kind: found.get(kind, 0) for kind in CLASSES},
            examples={
                kind: {name: _first(db, example.format(order=order), kind) for name, order in orders.items()}
                for kind in CLASSES
                if kind in found
            },
            records=records,
            results=results,
            repeats=raw - results,
            crossed=dict(db.execute(_CROSSED.format(applied=applied)).fetchall()),
        )

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not any(self.totals.values())


def _first(db: Any, query: str, kind: str) -> dict[str, Any]:
    found = db.execute(query, {"class": kind})
    columns = [column[0] for column in found.description]
    return {c: value for c, value in zip(columns, found.fetchone(), strict=True) if value is not None}
