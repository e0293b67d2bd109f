"""What became of one fault, and the report of a fault test: a table, totals, and faults.json."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import Console
from rich.table import Column, Table

from harness.oracle.verdict import doubted, merge
from harness.suites.faults.schedule import Fault

_GOOD: dict[str, str] = {"survives": "survived", "refuses": "refused"}

Verdict = Literal["survived", "refused", "restarted", "crashed", "stuck", "missed", "skipped"]


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """What became of a fault.

    Attributes:
        fault: the fault.
        verdict: survived; refused (ended with a sentence that names the cause, and went on after repair); restarted
            (went on, but the query's process ended, which it need not have); crashed (ended without such a sentence,
            or was not to be noticed at all); stuck (did not go on); missed (the fault did not happen); skipped (not
            possible on this machine).
        epoch: the last epoch that had finished when it happened.
        resume_s: from the fault, or from the repair of its cause, to the end of the next finished epoch.
        restarts: how often the query's process was started again.
        said: what the query said when it ended, or why the verdict is what it is.
    """

    fault: Fault
    verdict: Verdict
    epoch: int = -1
    resume_s: float | None = None
    restarts: int = 0
    said: str = ""

    @property
    def good(self) -> bool:
        """Whether this is what was expected."""
        return self.verdict in {"skipped", _GOOD[self.fault.expected]}

    def to_json(self) -> dict[str, Any]:
        """Returns the outcome as a line of a report."""
        own = asdict(self) | {"resume_s": None if self.resume_s is None else round(self.resume_s, 3)}
        return {**own.pop("fault"), **own, "name": self.fault.name, "good": self.good}


FILE = "faults.json"
SCHEMA = 1
_BROKEN = ("lost", "doubled", "wrong", "out_of_order")


def report_of(
    seed: int,
    schedule: Sequence[Fault],
    outcomes: Sequence[FaultOutcome],
    answers: Mapping[str, Mapping[str, Any]],
    *,
    seconds: float,
) -> dict[str, Any]:
    """Returns the report, JSON-ready: `good` only if every fault ended as expected and every answer is valid.

    Args:
        seed: of the schedule.
        schedule: all faults that were to be inflicted.
        outcomes: what became of those that were.
        answers: the oracle's answer by mechanism.
        seconds: how long the test took.
    """
    mechanisms = dict.fromkeys(fault.mechanism for fault in schedule)
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    campaigns = {
        name: _campaign(
            answers.get(name, {}),
            sum(fault.mechanism == name for fault in schedule),
            [outcome for outcome in outcomes if outcome.fault.mechanism == name],
        )
        for name in mechanisms
    }
    totals = {
        "faults": len(outcomes),
        "not inflicted": len(schedule) - len(outcomes),
        **{kind: sum(int(campaign[kind] or 0) for campaign in campaigns.values()) for kind in _BROKEN},
        "stuck": verdicts["stuck"],
        "not as expected": sum(not outcome.good for outcome in outcomes),
    }
    sound = merge([campaign["verdict"] for campaign in campaigns.values()]) == "valid"
    return {
        "schema": SCHEMA,
        "seed": seed,
        "good": sound and not any(count for name, count in totals.items() if name != "faults"),
        "seconds": round(seconds, 1),
        "totals": totals,
        "campaigns": campaigns,
        "faults": [outcome.to_json() for outcome in outcomes],
    }


def _campaign(answer: Mapping[str, Any], faults: int, outcomes: Sequence[FaultOutcome]) -> dict[str, Any]:
    """Returns the part of a campaign; its verdict is unknown where one of its faults did not happen."""
    happened = [outcome for outcome in outcomes if outcome.verdict not in {"missed", "skipped"}]
    doubts = [f"{outcome.fault.name} did not happen" for outcome in outcomes if outcome.verdict == "missed"]
    doubts += [f"{faults - len(outcomes)} of {faults} faults were not inflicted"] if len(outcomes) < faults else []
    doubts += [] if happened else ["no fault happened"]
    reasons = list(answer.get("reasons", ["The output was not checked."]))
    return {
        "verdict": doubted(answer.get("verdict", "unknown"), doubts),
        **{kind: answer.get(kind) for kind in (*_BROKEN, "records", "results", "repeats")},
        "reasons": [*reasons, *doubts],
    }


def show(report: Mapping[str, Any], console: Console) -> None:
    """Prints the table of faults, the oracle's answers and the totals."""
    numbers = (Column(name, justify="right") for name in ("restarts", "s to resume"))
    table = Table("fault", "phase", "mechanism", "verdict", *numbers, box=None, pad_edge=False)
    for line in report["faults"]:
        verdict = line["verdict"] if line["good"] else f"{line['verdict']} !"
        resumed = "-" if line["resume_s"] is None else f"{line['resume_s']:.1f}"
        table.add_row(line["name"], line["phase"], line["mechanism"], verdict, str(line["restarts"]), resumed)
    console.print(table)
    for name, campaign in report["campaigns"].items():
        why = "; ".join(campaign["reasons"])
        console.print(f"{name}: {campaign['verdict']}, {campaign['records']} records{f': {why}' if why else ''}")
    for line in report["faults"]:
        if not line["good"]:
            console.print(
                f"{line['number']:03d} {line['name']} ({line['mechanism']}) {line['verdict']}: {line['said']}"
            )
    totals = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in report["totals"].items())
    console.print(f"{totals}; seed {report['seed']}, {report['seconds']:.0f} s")
