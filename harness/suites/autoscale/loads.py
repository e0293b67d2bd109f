"""The loads that a policy is to follow, in units of what one worker does at the utilisation wanted."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from generators.rates import Schedule, make_schedule
from harness.measure.scores import Needed

LOADS = ("step", "surge", "sine", "spike", "drift", "steady")
_WINDOW_S = 0.5  # rates are those of so many seconds before and behind


@dataclass(frozen=True)
class LoadShape:
    """A load.

    Attributes:
        name: as an option names it.
        base: base rate in units.
        shape: of the rate, as `generators.rates` reads it; times count from the end of the lead-in.
        step_s: when the rate steps, on the same clock; None where it does not.
        more: fields of the experiment besides.
    """

    name: str
    base: float
    shape: str = "constant"
    step_s: float | None = None
    more: Mapping[str, Any] | None = None

    def rate(self, unit: float) -> int:
        """Returns the base rate in records/s, where one worker does `unit` records/s."""
        return max(1, round(self.base * unit))

    def schedule(self, unit: float, lead_s: float) -> Schedule:
        """Returns when each record is due."""
        return make_schedule(self.shape, self.rate(unit), lead_s)


def load_shapes(duration_s: float) -> dict[str, LoadShape]:
    """Returns the loads by name, at the length of a run: its first third is calm where there is a step.

    - step, surge: to 5 and 50 times the rate; the most needed are 3.5 and 6.5 units.
    - sine: two periods between 0.5 and 4.5 units.
    - spike: from 0.7 units to 3.5 in an eighth of the run, and slowly back.
    - drift: 2.5 units of which 90 % go to a quarter of the keys, and that moves through all of them.
    - steady: 2.5 units.
    """
    third, eighth = duration_s / 3, duration_s / 8
    drift = {"distribution": "drift:keys=5000,share=0.9,speed=1000", "policy": "load_aware"}
    found = (
        LoadShape("step", 0.7, f"step:{third:g}=5", third),
        LoadShape("surge", 0.13, f"step:{third:g}=50", third),
        LoadShape("sine", 2.5, f"sine:amplitude=0.8,period={duration_s / 2:g}"),
        LoadShape("spike", 0.7, f"spike:at={2 * eighth:g},factor=5,rise={eighth:g},decay={eighth:g}"),
        LoadShape("drift", 2.5, more=drift),
        LoadShape("steady", 2.5),
    )
    return {one.name: one for one in found}


def needed_of(schedule: Schedule, unit: float, most: int) -> Needed:
    """Returns how many workers a load needs, where each does `unit` records/s."""
    return Needed(partial(_rate, schedule), unit, 1, most)


def _rate(schedule: Schedule, at_s: float) -> float:
    low, high = max(at_s - _WINDOW_S, 0.0), at_s + _WINDOW_S
    due = schedule.records_until(int(high * 1e6)) - schedule.records_until(int(low * 1e6))
    return due / (high - low)
