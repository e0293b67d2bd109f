"""One case from its broker to its entry of the result; and a campaign of faults, each in the midst of a change."""

import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.files import read_json, read_lines, write_json
from harness.lab.processes import jvm_of
from harness.measure.cpu import machine, taken
from harness.measure.hdr import summary_ms
from harness.measure.migrations import Migration
from harness.measure.windows import TAGS, overlaps, peak_of, tag_records, timeline
from harness.oracle.changes.columns import VersionEffect
from harness.oracle.verdict import doubted
from harness.results.entry import load_met
from harness.results.runfiles import RunFiles
from harness.suites.changes.cases import APPLICATION, ChangeCase, Setting
from harness.suites.changes.site import ChangeSite
from harness.suites.faults.site import StuckError
from harness.suites.perf.restart import excess_ms
from impls.errors import StateError, UsageError
from impls.faults import CHANGE_POINTS

_ENDS = ("change_end", "migration_end")


def _window_of(folder: Path) -> Migration:
    """Returns the time in which a change was under way: from its first request until all that was asked for holds.

    It is a migration to those who measure it; its end is None where something does not hold.
    """
    asked = read_lines(folder / "requests.jsonl")
    events = read_lines(folder / "events.jsonl")
    ends = {str(event["id"]): int(event["at_us"]) for event in events if event["kind"] in _ENDS}
    ends |= {request["id"]: int(request["until_us"]) for request in asked if "until_us" in request}
    known = [ends.get(request["id"]) for request in asked]
    over = [end for end in known if end is not None]
    label = " and ".join(request["label"] for request in asked)
    until = max(over) if over and len(over) == len(known) else None
    return Migration("change", label, min((request["at_us"] for request in asked), default=0), until, ())


def measured(folder: Path) -> dict[str, Any]:
    """Returns the figures of a case: times in s, latencies in ms, None in place of what is not known."""
    files, change = RunFiles(folder), _window_of(folder)
    warm_us = files.start_us + round(float(files.load["lead_in_s"]) * 1e6)
    cells = files.cells
    tags = tag_records(cells, [change], warm_us)
    steady = tags == TAGS.index("steady")
    line, peak = timeline(cells, tags).rows(files.start_us), peak_of(cells, tags, change)
    latency = {"steady": summary_ms(cells.latency_us[steady], cells.count[steady])}
    inside = overlaps(cells, change)
    stolen = taken(files.memory, warm_us, files.epochs[-1]["end_us"]) if files.epochs else None
    out: dict[str, Any] = {
        "held_s": None if change.end_us is None else (change.end_us - change.begin_us) / 1e6,
        "begin_s": (change.begin_us - files.start_us) / 1e6,
        "peak_ms": peak.peak_ms,
        "peak_ratio": peak.ratio,
        "peak_windows": peak.windows,
        "latency_ms": {**latency, "changing": summary_ms(cells.latency_us[inside], cells.count[inside])},
        "excess_ms": None,
        "epochs": int(np.unique(cells.epoch[inside]).size),
        "negative": sum(int(epoch["negative"]) for epoch in files.epochs),
        "load": load_met(read_json(folder / "generator.json").get("lag_ms") or {}, files.load),
        "machine": machine(stolen),
        "cpu_taken": None if stolen is None else stolen.to_json(),
        "timeline": line,
    }
    if peak.peak_ms is not None and any(row["tag"] == "steady" for row in line):
        entry = {"timeline": line, "latency_ms": latency, "migrations": [{"peak_ms": peak.peak_ms}]}
        out["excess_ms"] = excess_ms(entry)
    return out


ENTRY_FILE = "entry.json"
_HEAVY = ("state", "checkpoint", "broker")
_FIRE_DEADLINE_S = 60.0
_FAULT = "worker"


def run_case(case: ChangeCase, folder: Path) -> dict[str, Any]:
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
    entry = entry_of(case, folder, outcome, answer, why)
    write_json(folder / ENTRY_FILE, entry)
    if entry["verdict"] == "valid":
        forget_heavy(folder)
    return entry


def forget_heavy(folder: Path) -> None:
    """Deletes state, checkpoint and topics of a case, which only a finding makes worth keeping."""
    for heavy in _HEAVY:
        shutil.rmtree(folder / heavy, ignore_errors=True)


def entry_of(case: ChangeCase, folder: Path, outcome: str, answer: dict[str, Any], why: str) -> dict[str, Any]:
    """Returns the entry of a case: how its change ended, what the oracle answers, why it was cut off, figures."""
    verdict, reasons = answer.get("verdict", "unknown"), list(answer.get("reasons", []))
    reasons += [f"The case was cut off: {why}."] if why else []
    figures = measured(folder) if (folder / "load.json").exists() and (folder / "requests.jsonl").exists() else {}
    if negative := figures.get("negative"):
        reasons.append(f"{negative} latencies are negative: the clock was stepped, or records were sent ahead of time.")
    if verdict == "valid" and (reasons or outcome != "done"):
        reasons.append(f"The change is {outcome}.")
    verdict = doubted(verdict, reasons)
    own = {"experiment": case.experiment, "how": case.how, "mode": case.setting.mode, "outcome": outcome}
    oracle = {name: value for name, value in answer.items() if name not in {"verdict", "reasons", "boundaries"}}
    return {**own, "verdict": verdict, "reasons": reasons, **figures, "oracle": oracle}


def _follow(case: ChangeCase, site: ChangeSite) -> str:
    """Runs load and change, and returns what became of it when everything is applied and the query has ended."""
    setting = case.setting
    site.start()
    begun = read_json(site.folder / "load.json")["start_us"]
    with site.sampler():
        site.go_on(max(0.0, begun / 1e6 + setting.lead_in_s + setting.steady_s - now_us() / 1e6))
        outcome = _change(case, site)
        site.go_on(setting.after_s)
    site.finish()
    return outcome


def _change(case: ChangeCase, site: ChangeSite) -> str:
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


@dataclass(frozen=True)
class ChangeFault:
    """A process that is killed while the pipeline changes.

    Attributes:
        what: the part of `VersionEffect` that changes: sieve, label or shape.
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


def turned(code: VersionEffect, what: str) -> VersionEffect:
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
    case = ChangeCase("faults", f"{len(faults)} killed", setting)
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
    verdict, reasons = judged(answer, lines)
    oracle = {name: value for name, value in answer.items() if name not in {"verdict", "reasons", "boundaries"}}
    own = {"experiment": case.experiment, "how": case.how, "mode": setting.mode, "outcome": f"{len(lines)} inflicted"}
    return {**own, "verdict": verdict, "reasons": reasons, "faults": lines, "oracle": oracle}


def judged(answer: dict[str, Any], lines: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """Returns a campaign's verdict and its reasons, from the oracle's answer and what became of each fault."""
    odd = [line for line in lines if line["outcome"] != "done" or not line["fired"]]
    doubts = [f"{line['name']} in a change of {line['what']}: {line['said']}" for line in odd]
    doubts += [] if lines else ["No fault was inflicted."]
    return doubted(answer["verdict"], doubts), [*answer["reasons"], *doubts]


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
    change = site.await_change(id_)
    if not in_change:
        with suppress(StuckError):
            site.await_true(lambda: site.arming.fired(name) is not None, "the fault to fire", _FIRE_DEADLINE_S)
    site.arming.disarm()
    held_s = (now_us() - asked_us) / 1e6
    site.more_records()
    fired = site.arming.fired(name) is not None
    said = "the fault did not happen" if not fired else f"{change['state']} {change['why']}"
    line = {"name": fault.name, "what": fault.what, "outcome": change["state"], "fired": fired, "said": said.strip()}
    return {**line, "held_s": held_s, "restarts": site.restarts}


def _arm(site: ChangeSite, fault: ChangeFault, name: str) -> None:
    driver = site.query.pid
    pids = {"driver": driver, "jvm": jvm_of(driver), "broker": site.broker.pid}
    known = {role: pid for role, pid in pids.items() if pid is not None}  # a worker is what comes to the point
    site.arming.arm(name, victim=fault.victim, point=fault.point, pids=known)
