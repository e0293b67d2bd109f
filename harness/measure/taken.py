"""How much of a run's CPU time was taken away from it, and whether that makes the machine busy; pure functions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

__all__ = ["BUSY", "Taken", "machine", "taken"]

BUSY = 0.1
_SECONDS_MIN = 2.0  # of samples: counters tick in hundredths of a second, and a second of them is mostly chance


@dataclass(frozen=True)
class Taken:
    """Shares of the CPU time that a run wanted: `share` is what it did not get, the others what that consists of.

    What it wanted is what its processes used plus what was taken, and taken was:
    - steal: time that the hypervisor gave to other machines while something here wanted to run;
    - others: time that processes other than the run's used, less the time in which processors were idle, second by
      second; what others use while there is idle time left takes nothing from the run;
    - throttled: time for which the run's control group was held back at its quota.
    A part that the system does not tell counts as 0. Between two samples, others and idle time are compared within
    these, and all are summed over the measured part of the run.
    """

    share: float
    steal: float
    others: float
    throttled: float

    def to_json(self) -> dict[str, float]:
        """Returns the shares, rounded to a tenth of a percent."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def taken(samples: Sequence[dict[str, Any]], begin_us: int, end_us: int) -> Taken | None:
    """Returns what was taken from a run in the part from `begin_us` to `end_us`; None where too little is known.

    Args:
        samples: lines of memory.jsonl; those with `cpu` have the sums of `harness.measure.cpu`, microseconds.
        begin_us: begin of the measured part, wall clock.
        end_us: its end.
    """
    inside = [line for line in samples if line.get("cpu") and begin_us <= line["at_us"] <= end_us]
    if len(inside) < 2 or inside[-1]["at_us"] - inside[0]["at_us"] < _SECONDS_MIN * 1e6:
        return None
    own = steal = others = throttled = 0
    for before, after in pairwise(line["cpu"] for line in inside):
        spent = {name: after[name] - before.get(name, after[name]) for name in after}
        if spent["own"] < 0:  # a process of the run has vanished together with its sum
            continue
        own += spent["own"]
        steal += max(0, spent["steal"])
        throttled += max(0, spent.get("throttled", 0))
        others += max(0, spent.get("used", 0) - spent["own"] - max(0, spent["idle"]))
    wanted = own + steal + others + throttled
    if not wanted:
        return None
    return Taken(*((part / wanted) for part in (steal + others + throttled, steal, others, throttled)))


def machine(found: Taken | None) -> str:
    """Returns busy where more than a tenth of a run's CPU time was taken away, quiet where not, else unknown."""
    return "unknown" if found is None else "busy" if found.share > BUSY else "quiet"
