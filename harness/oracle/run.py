"""Checks one run: its two topics, its query's checkpoint and its own files, into `oracle.json`."""

import base64
import json
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.oracle.columns import BinOf, MovedBins, RawResults, Records, Waits
from harness.oracle.keycount import check
from harness.oracle.read import read_ranges, read_records, read_results, result_partitions
from harness.oracle.verdict import Facts, answered, judge


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


class Stopwatch:
    """The seconds that reading and checking take: read() between them."""

    def __init__(self) -> None:
        self._begun = self._read = time.monotonic()

    def read(self) -> None:
        """Ends the reading."""
        self._read = time.monotonic()

    def seconds(self) -> dict[str, float]:
        """Returns seconds of reading and of checking, up to now."""
        return {"read": round(self._read - self._begun, 3), "check": round(time.monotonic() - self._read, 3)}


@dataclass(frozen=True)
class CheckedRun:
    """A finished run, as every oracle reads it.

    Attributes:
        bootstrap: broker addresses.
        folder: the run's folder: generator.json, events.jsonl and plan.jsonl are read, oracle.json is written.
        bin_of: bins of keys, see `harness.oracle.columns`.
        expected_migrations: migrations the experiment was to command; with fewer the run is unknown.
        topics: with the input, with the results.
        deadline_s: longest time without a message of a topic that is being read, in seconds.
    """

    bootstrap: str
    folder: Path
    bin_of: BinOf
    expected_migrations: int = 0
    topics: tuple[str, str] = ("in", "out")
    deadline_s: float = 60.0

    def records(self) -> Records:
        """Returns the whole input topic; raises OracleError as `harness.oracle.read` does."""
        return read_records(self.bootstrap, self.topics[0], deadline_s=self.deadline_s)

    def results(self) -> RawResults:
        """Returns the whole results topic; raises OracleError as `harness.oracle.read` does."""
        return read_results(self.bootstrap, self.topics[1], deadline_s=self.deadline_s)

    def partitions(self) -> int:
        """Returns the number of partitions of the results topic."""
        return result_partitions(self.bootstrap, self.topics[1])

    def facts(self) -> Facts:
        """Returns what the folder says of the run, see `read_facts`."""
        return read_facts(self.folder, expected=self.expected_migrations)

    def answer(self, ask: Callable[[Stopwatch], dict[str, Any]]) -> dict[str, Any]:
        """Returns what `ask` answers, in oracle.json too; unknown when it raises any exception."""
        return answered(self.folder, lambda: ask(Stopwatch()))


def check_run(run: CheckedRun, checkpoint: Path) -> dict[str, Any]:
    """Writes oracle.json of a finished run and returns the same; never raises for a bad run.

    Args:
        run: what is checked.
        checkpoint: the checkpoint folder of the query: its offset and commit logs are read.
    """

    def ask(watch: Stopwatch) -> dict[str, Any]:
        where: dict[str, Any] = {"bin_of": run.bin_of, "moves": read_moves(run.folder), "waits": read_waits(run.folder)}
        ranges = read_ranges(checkpoint, run.topics[0])
        records, results, partitions = run.records(), run.results(), run.partitions()
        watch.read()
        found = check(records, results, ranges, partitions=partitions, **where)
        return {**judge(found, run.facts()), "seconds": watch.seconds()}

    return run.answer(ask)
