"""The verdict over a run: valid, invalid, or unknown when the run could not show anything."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.files import write_json
from harness.oracle.differences import CLASSES, Differences

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


def merge(verdicts: Collection[Verdict]) -> Verdict:
    """Returns the verdict of the whole: invalid before unknown before valid; unknown of nothing at all."""
    return next((verdict for verdict in _PRIORITY if verdict in verdicts), "unknown")


def _vacuous(found: Differences, facts: Facts) -> list[str]:
    """Returns why a run without findings may still have shown nothing."""
    reasons = []
    if not found.records or not found.results:
        reasons.append(f"Nothing to check: {found.records} input records and {found.results} results were read.")
    if facts.produced is None:
        reasons.append("The generator left no count of the records it sent.")
    elif facts.produced != found.records:
        reasons.append(f"The generator sent {facts.produced} records and the input topic holds {found.records}.")
    if len(facts.commanded) < facts.expected:
        reasons.append(f"Only {len(facts.commanded)} of {facts.expected} migrations were commanded.")
    if unfinished := sorted(facts.commanded - facts.completed):
        reasons.append(
            f"{len(unfinished)} of {len(facts.commanded)} migrations did not complete, first {unfinished[0]}."
        )
    if uncrossed := sorted(facts.commanded - {migration for migration, n in found.crossed.items() if n}):
        reasons.append(f"No record crossed {len(uncrossed)} of {len(facts.commanded)} migrations: {uncrossed}.")
    return reasons


def _broken(found: Differences) -> list[str]:
    return [f"{number} {kind.replace('_', ' ')}" for kind, number in found.totals.items() if number]


def judge(found: Differences, facts: Facts) -> dict[str, Any]:
    """Returns the oracle's answer, JSON-ready: verdict, totals by class, reasons and examples."""
    broken, vacuous = _broken(found), _vacuous(found, facts)
    verdicts: list[Verdict] = ["invalid" if broken else "valid", "unknown" if vacuous else "valid"]
    return {
        "verdict": merge(verdicts),
        **found.totals,
        "records": found.records,
        "results": found.results,
        "repeats": found.repeats,
        "crossed": sum(found.crossed.values()),
        "waited": found.waited,
        "longest_wait": found.longest_wait,
        "reasons": broken + vacuous,
        "examples": found.examples,
    }


def _raised(error: Exception) -> dict[str, Any]:
    """Returns the answer when the checker itself failed: unknown, never a pass."""
    numbers = dict.fromkeys((*CLASSES, "records", "results", "repeats", "crossed", "waited", "longest_wait"), 0)
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
