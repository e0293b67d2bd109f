"""What a checker found, and the verdict over a run: valid, invalid, or unknown where not all of it was decided."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.files import write_json

CLASSES = ("lost", "doubled", "wrong", "out_of_order")

# A number at or below the highest one before it, of the same worker in the same partition, is a repeat.
NUMBERED = """
CREATE TABLE numbered AS
SELECT *, number > coalesce(max(number) OVER earlier, -1) AS accepted
FROM (SELECT *, (CAST(epoch AS HUGEINT) << 64) + "index" AS number FROM results)
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
        undecided: bins of which the checker cannot say whether their results are right.
    """

    totals: dict[str, int]
    examples: dict[str, dict[str, dict[str, Any]]]
    records: int
    results: int
    repeats: int
    crossed: dict[str, int] = field(default_factory=dict)
    waited: int = 0
    longest_wait: int = 0
    undecided: int = 0

    @classmethod
    def of(
        cls,
        db: Any,
        number: str,
        example: str,
        orders: Mapping[str, str],
        *,
        records: int,
        raw: int,
        applied: str,
        undecided: int = 0,
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
            undecided: bins that the checker could not decide.
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
            undecided=undecided,
        )

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not any(self.totals.values())


def _first(db: Any, query: str, kind: str) -> dict[str, Any]:
    found = db.execute(query, {"class": kind})
    columns = [column[0] for column in found.description]
    return {c: value for c, value in zip(columns, found.fetchone(), strict=True) if value is not None}


Verdict = Literal["valid", "invalid", "unknown"]

_PRIORITY: tuple[Verdict, ...] = ("invalid", "unknown", "valid")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the run says of itself, to be held against what was found.

    Attributes:
        produced: records the generator says it sent; None when it says nothing.
        commanded: migrations asked for, by id.
        completed: migrations that reached their goal, by id.
        expected: migrations the experiment was to command.
    """

    produced: int | None
    commanded: frozenset[str] = frozenset()
    completed: frozenset[str] = frozenset()
    expected: int = 0


def merge(verdicts: Iterable[str]) -> Verdict:
    """Returns the verdict of the whole: invalid before unknown before valid; unknown of nothing at all.

    What is none of the three counts as unknown.
    """
    parts = {verdict if verdict in _PRIORITY else "unknown" for verdict in verdicts}
    return next((verdict for verdict in _PRIORITY if verdict in parts), "unknown")


def doubted(verdict: str, doubts: Collection[str]) -> Verdict:
    """Returns a verdict with the reasons for which not all was decided: with one of them nothing is valid."""
    return merge([verdict, "unknown" if doubts else verdict])


def _vacuous(differences: Differences, facts: Facts) -> list[str]:
    """Returns why a run without findings may still have shown nothing."""
    reasons = []
    if not differences.records or not differences.results:
        reasons.append(
            f"Nothing to check: {differences.records} input records and {differences.results} results were read."
        )
    if facts.produced is None:
        reasons.append("The generator left no count of the records it sent.")
    elif facts.produced != differences.records:
        reasons.append(f"The generator sent {facts.produced} records and the input topic holds {differences.records}.")
    if len(facts.commanded) < facts.expected:
        reasons.append(f"Only {len(facts.commanded)} of {facts.expected} migrations were commanded.")
    if unfinished := sorted(facts.commanded - facts.completed):
        reasons.append(
            f"{len(unfinished)} of {len(facts.commanded)} migrations did not complete, first {unfinished[0]}."
        )
    if differences.undecided:
        reasons.append(f"{differences.undecided} bins are undecided: their records may have interleaved in many ways.")
    if uncrossed := sorted(facts.commanded - {migration for migration, n in differences.crossed.items() if n}):
        reasons.append(f"No record crossed {len(uncrossed)} of {len(facts.commanded)} migrations: {uncrossed}.")
    return reasons


def _broken(found: Differences) -> list[str]:
    return [f"{number} {kind.replace('_', ' ')}" for kind, number in found.totals.items() if number]


def judge(differences: Differences, facts: Facts) -> dict[str, Any]:
    """Returns the oracle's answer, JSON-ready: verdict, totals by class, reasons and examples."""
    broken, vacuous = _broken(differences), _vacuous(differences, facts)
    return {
        "verdict": doubted("invalid" if broken else "valid", vacuous),
        **differences.totals,
        "records": differences.records,
        "results": differences.results,
        "repeats": differences.repeats,
        "crossed": sum(differences.crossed.values()),
        "waited": differences.waited,
        "longest_wait": differences.longest_wait,
        "undecided": differences.undecided,
        "reasons": broken + vacuous,
        "examples": differences.examples,
    }


_COUNTS = ("records", "results", "repeats", "crossed", "waited", "longest_wait", "undecided")


def _raised(error: Exception) -> dict[str, Any]:
    """Returns the answer when the checker itself failed: unknown, never a pass."""
    numbers = dict.fromkeys((*CLASSES, *_COUNTS), 0)
    reason = f"The checker could not finish: {type(error).__name__}: {error}"
    return {"verdict": "unknown", **numbers, "reasons": [reason], "examples": {}}


def answered(folder: Path, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns what `check` answers, in the folder's `oracle.json` too; unknown when it raises any exception."""
    try:
        answer = check()
    except Exception as error:  # a checker that fails must end as unknown, whatever went wrong
        answer = _raised(error)
    write_json(folder / "oracle.json", answer)
    return answer
