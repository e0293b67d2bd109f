"""What became of one fault."""

from dataclasses import dataclass
from typing import Any, Literal

from harness.suites.faults.schedule import Fault

__all__ = ["Outcome", "Verdict"]

_GOOD: dict[str, str] = {"survives": "survived", "refuses": "refused"}

Verdict = Literal["survived", "refused", "restarted", "crashed", "stuck", "missed", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
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
        return {
            **self.fault.to_json(),
            "verdict": self.verdict,
            "good": self.good,
            "epoch": self.epoch,
            "resume_s": None if self.resume_s is None else round(self.resume_s, 3),
            "restarts": self.restarts,
            "said": self.said,
        }
