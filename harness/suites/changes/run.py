"""One case from its broker to its entry of the result."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.files import read_json, read_lines, write_json
from harness.measure.cpu import machine, taken
from harness.measure.hdr import summary_ms
from harness.measure.migrations import Migration
from harness.measure.windows import TAGS, overlaps, peak_of, tag_records, timeline
from harness.results.entry import RunFiles, load_met
from harness.suites.changes.cases import APPLICATION, Case
from harness.suites.changes.site import ChangeSite
from harness.suites.faults.site import StuckError
from harness.suites.perf.moving import excess_ms
from impls.errors import StateError, UsageError

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
