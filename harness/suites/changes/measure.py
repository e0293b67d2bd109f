"""What a change cost, from the files of its case: the time until it holds, and latencies while it was under way."""

from pathlib import Path
from typing import Any

import numpy as np

from harness.files import read_json, read_lines
from harness.measure.cpu import machine, taken
from harness.measure.hdr import summary_ms
from harness.measure.migrations import Migration
from harness.measure.windows import TAGS, overlaps, peak_of, tag_records, timeline
from harness.results.entry import RunFiles, load_met
from harness.suites.perf.moving import excess_ms

__all__ = ["measured"]

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
