"""Checks one run: its two topics, its query's checkpoint and its own files, into `oracle.json`."""

import base64
import json
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.oracle.bins import BinOf
from harness.oracle.columns import MovedBins, Waits
from harness.oracle.keycount import check
from harness.oracle.offsets import read_ranges
from harness.oracle.read import read_records, read_results, result_partitions
from harness.oracle.verdict import Facts, answered, judge

__all__ = ["check_run", "read_facts", "read_moves", "read_waits"]


def _produced(folder: Path) -> int | None:
    for name in ("generator.json", "load.json"):
        if (folder / name).exists():
            data = json.loads((folder / name).read_text())
            return int(data["records"]) + int(data.get("already_there", 0)) if "records" in data else None
    return None


def read_facts(folder: Path, *, expected: int = 0) -> Facts:
    """Returns what a run folder says of the run: records sent, migrations commanded and completed."""
    events = read_lines(folder / "events.jsonl")
    ids = {kind: frozenset(str(e["id"]) for e in events if e["kind"] == kind) for kind in ("command", "migration_end")}
    return Facts(_produced(folder), ids["command"], ids["migration_end"], expected)


def _routing(line: dict[str, Any]) -> NDArray[np.int64]:
    return np.frombuffer(base64.b64decode(line["routing"]), "<u2").astype(np.int64)


def read_moves(folder: Path) -> MovedBins:
    """Returns the bins that changed their owner in each epoch: pulled, or routed elsewhere than the epoch before."""
    events = read_lines(folder / "events.jsonl")
    begins = {int(e["epoch"]): str(e["id"]) for e in events if e["kind"] == "migration_begin"}
    starts = sorted(begins)
    plans = {line["epoch"]: line for line in read_lines(folder / "plan.jsonl")}
    rows: list[tuple[int, int, str]] = []
    before: NDArray[np.int64] | None = None
    for epoch, line in sorted(plans.items()):
        routing = _routing(line)
        changed = [] if before is None else np.flatnonzero(routing != before).tolist()
        at = bisect_right(starts, epoch)
        migration = begins[starts[at - 1]] if at else ""
        rows += [(epoch, bin_, migration) for bin_ in sorted({*changed, *(pull[0] for pull in line["pulls"])})]
        before = routing
    return MovedBins.of(rows)


def read_waits(folder: Path) -> Waits:
    """Returns the bins with queued records at each epoch's end; of an epoch observed twice the last line counts."""
    waiting = {line["epoch"]: line.get("waiting", []) for line in read_lines(folder / "epochs.jsonl")}
    return Waits.of((epoch, bin_) for epoch, bins in waiting.items() for bin_ in bins)


def check_run(
    bootstrap: str,
    folder: Path,
    *,
    checkpoint: Path,
    bin_of: BinOf,
    expected_migrations: int = 0,
    input_topic: str = "in",
    output_topic: str = "out",
    deadline_s: float = 60.0,
) -> dict[str, Any]:
    """Checks a finished run, writes `oracle.json` into its folder and returns the same; never raises for a bad run.

    Args:
        bootstrap: broker addresses.
        folder: the run's folder: generator.json, events.jsonl and plan.jsonl are read.
        checkpoint: the checkpoint folder of the query: its offset and commit logs are read.
        bin_of: bins of keys, see `harness.oracle.bins`.
        expected_migrations: migrations the experiment was to command; with fewer the run is unknown.
        input_topic: topic with the input.
        output_topic: topic with the results.
        deadline_s: longest time for each topic, in seconds.
    """

    def ask() -> dict[str, Any]:
        facts, moves, waits = read_facts(folder, expected=expected_migrations), read_moves(folder), read_waits(folder)
        ranges = read_ranges(checkpoint, input_topic)
        begun = time.monotonic()
        records = read_records(bootstrap, input_topic, deadline_s=deadline_s)
        results = read_results(bootstrap, output_topic, deadline_s=deadline_s)
        partitions = result_partitions(bootstrap, output_topic)
        read = time.monotonic()
        found = check(records, results, ranges, bin_of=bin_of, partitions=partitions, moves=moves, waits=waits)
        seconds = {"read": round(read - begun, 3), "check": round(time.monotonic() - read, 3)}
        return {**judge(found, facts), "seconds": seconds}

    return answered(folder, ask)
