"""Processes killed in the midst of changes: one change after another of one query, a fault in each, one oracle."""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from generators.clock import now_us
from harness.files import write_json
from harness.lab.processes import jvm_of
from harness.oracle.changes.columns import Code
from harness.suites.changes.cases import Case, Setting
from harness.suites.changes.site import ChangeSite
from harness.suites.faults.site import StuckError
from impls.errors import StateError, UsageError
from impls.faults import CHANGE_POINTS

_FIRE_DEADLINE_S = 60.0


@dataclass(frozen=True)
class ChangeFault:
    """A process that is killed while the pipeline changes.

    Attributes:
        what: the part of `Code` that changes: sieve, label or shape.
        victim, point: process role and fault point, see `impls.faults`.
    """

    what: str
    victim: str
    point: str

    @property
    def name(self) -> str:
        """victim@point."""
        return f"{self.victim}@{self.point}"


FAULTS = tuple(
    ChangeFault(what, *name.split("@"))
    for what, name in (
        ("sieve", "worker@during-trial"),
        ("label", "driver@before-switch"),
        ("shape", "worker@during-refit"),
        ("sieve", "broker@before-results"),
        ("label", "jvm@during-trial"),
        ("shape", "driver@after-plan"),
        ("sieve", "driver@before-epoch-commit"),
        ("label", "worker@after-commit"),
        ("shape", "jvm@during-refit"),
        ("sieve", "jvm@before-switch"),
        ("label", "worker@before-report"),
        ("shape", "broker@during-refit"),
    )
)


def faults_of(number: int) -> list[ChangeFault]:
    """Returns so many faults: the table's, from its beginning again when there are more."""
    return list(islice(cycle(FAULTS), number))


def turned(code: Code, what: str) -> Code:
    """Returns the code with one part of it turned: the filter put in or out, the other function, the other shape."""
    if what == "sieve":
        return replace(code, sieve=not code.sieve)
    return replace(code, label=3 - code.label) if what == "label" else replace(code, shape=3 - code.shape)


def campaign(
    setting: Setting, faults: list[ChangeFault], folder: Path, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Inflicts the faults, each in a change of its own, and returns the campaign's entry of the result.

    `tell` gets what became of each as soon as that is known.
    """
    folder.mkdir(parents=True)
    case = Case("faults", f"{len(faults)} killed", setting)
    write_json(folder / "case.json", case.to_json())
    lines: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"verdict": "unknown", "reasons": []}
    with closing(ChangeSite(case, folder)) as site:
        try:
            site.start()
            for number, fault in enumerate(faults):
                lines.append(_inflict(site, fault, f"{number:03d}-{fault.name}"))
                tell(lines[-1])
            site.finish()
            answer = site.judge()
        except (StuckError, StateError, UsageError) as error:
            answer = {"verdict": "unknown", "reasons": [f"The campaign was cut off: {error}"]}
    odd = [line for line in lines if line["outcome"] != "done" or not line["fired"]]
    reasons = [*answer["reasons"], *(f"{line['name']} in a change of {line['what']}: {line['said']}" for line in odd)]
    verdict = "unknown" if answer["verdict"] == "valid" and odd else answer["verdict"]
    oracle = {name: value for name, value in answer.items() if name not in {"verdict", "reasons", "boundaries"}}
    own = {"experiment": case.experiment, "how": case.how, "mode": setting.mode, "outcome": f"{len(lines)} inflicted"}
    return {**own, "verdict": verdict, "reasons": reasons, "faults": lines, "oracle": oracle}


def _inflict(site: ChangeSite, fault: ChangeFault, name: str) -> dict[str, Any]:
    """Kills the fault's victim in the midst of a change, and returns what became of it when the change is over."""
    site.begin_fault()
    in_change = fault.point in CHANGE_POINTS
    if in_change:
        _arm(site, fault, name)
    asked_us = now_us()
    id_ = site.request(turned(site.code, fault.what))
    if not in_change:  # such points are passed all the time
        _arm(site, fault, name)
    found = site.await_change(id_)
    if not in_change:
        with suppress(StuckError):
            site.await_true(lambda: site.arming.fired(name) is not None, "the fault to fire", _FIRE_DEADLINE_S)
    site.arming.disarm()
    held_s = (now_us() - asked_us) / 1e6
    site.more_records()
    fired = site.arming.fired(name) is not None
    said = "the fault did not happen" if not fired else f"{found['state']} {found['why']}"
    line = {"name": fault.name, "what": fault.what, "outcome": found["state"], "fired": fired, "said": said.strip()}
    return {**line, "held_s": held_s, "restarts": site.restarts}


def _arm(site: ChangeSite, fault: ChangeFault, name: str) -> None:
    driver = site.query.pid
    pids = {"driver": driver, "jvm": jvm_of(driver), "broker": site.broker.pid}
    known = {role: pid for role, pid in pids.items() if pid is not None}  # a worker is what comes to the point
    site.arming.arm(name, victim=fault.victim, point=fault.point, pids=known)
