"""One case from its broker to its entry of the result."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from generators.clock import now_us
from harness.files import read_json, write_json
from harness.suites.changes.cases import APPLICATION, Case
from harness.suites.changes.measure import measured
from harness.suites.changes.site import ChangeSite
from harness.suites.faults.site import StuckError
from impls.errors import StateError, UsageError

__all__ = ["ENTRY_FILE", "forget_heavy", "run_case"]

ENTRY_FILE = "entry.json"
_HEAVY = ("state", "checkpoint", "broker")
_FIRE_DEADLINE_S = 60.0
_FAULT = "worker"


def run_case(case: Case, folder: Path) -> dict[str, Any]:
    """Runs a case in a new folder, writes its entry there and returns it; what cannot be finished is unknown."""
    folder.mkdir(parents=True)
    write_json(folder / "case.json", case.to_json())
    outcome, answer, why = "unknown", dict[str, Any](), ""
    with closing(ChangeSite(case, folder)) as site:
        try:
            outcome = _follow(case, site)
            answer = site.judge()
        except (StuckError, StateError, UsageError) as error:
            why = str(error)
    entry = _entry(case, folder, outcome, answer, why)
    write_json(folder / ENTRY_FILE, entry)
    if entry["verdict"] == "valid":
        forget_heavy(folder)
    return entry


def forget_heavy(folder: Path) -> None:
    """Deletes state, checkpoint and topics of a case, which only a finding makes worth keeping."""
    for heavy in _HEAVY:
        shutil.rmtree(folder / heavy, ignore_errors=True)


def _entry(case: Case, folder: Path, outcome: str, answer: dict[str, Any], why: str) -> dict[str, Any]:
    verdict, reasons = answer.get("verdict", "unknown"), list(answer.get("reasons", []))
    reasons += [f"The case was cut off: {why}."] if why else []
    figures = measured(folder) if (folder / "load.json").exists() and (folder / "requests.jsonl").exists() else {}
    if negative := figures.get("negative"):
        reasons.append(f"{negative} latencies are negative: the clock was stepped, or records were sent ahead of time.")
    if verdict == "valid" and (reasons or outcome != "done"):
        verdict, reasons = "unknown", [*reasons, f"The change is {outcome}."]
    own = {"experiment": case.experiment, "how": case.how, "mode": case.setting.mode, "outcome": outcome}
    oracle = {name: value for name, value in answer.items() if name not in {"verdict", "reasons", "boundaries"}}
    return {**own, "verdict": verdict, "reasons": reasons, **figures, "oracle": oracle}


def _follow(case: Case, site: ChangeSite) -> str:
    """Runs load and change, and returns what became of it when everything is applied and the query has ended."""
    own = case.setting
    site.start()
    begun = read_json(site.folder / "load.json")["start_us"]
    with site.sampler():
        site.go_on(max(0.0, begun / 1e6 + own.lead_in_s + own.steady_s - now_us() / 1e6))
        outcome = _change(case, site)
        site.go_on(own.after_s)
    site.finish()
    return outcome


def _change(case: Case, site: ChangeSite) -> str:
    """Makes the case's change and returns "done", or "refused" and why."""
    if case.experiment == "rebalance":
        site.migration(rescale=False)
        site.await_migration()
        return "done"
    if case.restarts:
        site.restart(case.code, application=case.how == APPLICATION)
        return "done"
    how = {"lazy": case.lazy} if case.experiment == "change-shape" else {}
    id_ = site.request(case.code, **how)
    if case.experiment == "change-shape":
        site.migration(rescale=True)
        if case.killed:
            _kill(site)
    found = site.await_change(id_)
    site.await_migration()
    return found["state"] if found["state"] == "done" else f"{found['state']}: {found['why']}"


def _kill(site: ChangeSite) -> None:
    """Kills a worker that turns the state of a bin; raises StuckError when none does."""
    site.arming.arm(_FAULT, victim="worker", point="during-refit", pids={})
    try:
        site.await_true(lambda: site.arming.fired(_FAULT) is not None, "a worker to turn state", _FIRE_DEADLINE_S)
    finally:
        site.arming.disarm()
