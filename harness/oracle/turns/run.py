"""Checks one run in real time: its two topics, its workers' environments and its own files, into `oracle.json`."""

import base64
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.oracle.bins import BinOf
from harness.oracle.columns import MovedBins, NextOffsets, OracleError
from harness.oracle.read import read_records, read_results, result_partitions
from harness.oracle.run import read_facts, read_moves
from harness.oracle.turns.check import check
from harness.oracle.turns.state import read_next_offsets
from harness.oracle.verdict import answered, judge

__all__ = ["check_turns", "moved_at"]


def moved_at(folder: Path) -> MovedBins:
    """Returns the bins that each migration moved, with the time at which it had ended (µs since 1970) as the epoch.

    A record of such a bin that is scheduled later crosses the migration. What has not ended is crossed by none.
    """
    events = read_lines(folder / "events.jsonl")
    ends = {str(event["id"]): int(event["at_us"]) for event in events if event["kind"] == "migration_end"}
    moves = read_moves(folder)
    pairs = {(str(name), int(bin_)) for name, bin_ in zip(moves.migration, moves.bin, strict=True) if name in ends}
    return MovedBins.of([(ends[name], bin_, name) for name, bin_ in sorted(pairs)])


def _owners(folder: Path) -> NDArray[np.int64]:
    """Returns the worker of each bin as the last plan routes it, which is where its state is once nothing moves."""
    plans = {line["epoch"]: line for line in read_lines(folder / "plan.jsonl")}
    if not plans:
        raise OracleError("No plan was written, so that it is not known which worker has which bin.")
    return np.frombuffer(base64.b64decode(plans[max(plans)]["routing"]), "<u2").astype(np.int64)


def check_turns(
    bootstrap: str,
    folder: Path,
    *,
    bin_of: BinOf,
    state: Path | None,
    expected_migrations: int = 0,
    input_topic: str = "in",
    output_topic: str = "out",
    deadline_s: float = 60.0,
) -> dict[str, Any]:
    """Checks a finished run, writes `oracle.json` into its folder and returns the same; never raises for a bad run.

    Besides what every oracle says there is `undecided`: bins whose records may have interleaved in too many ways to say
    whether their turns can be explained.

    Args:
        bootstrap: broker addresses.
        folder: the run's folder: generator.json, events.jsonl and plan.jsonl are read.
        bin_of: bins of keys, see `harness.oracle.bins`.
        state: folder of the workers' environments; None where a shared store has the state.
        expected_migrations: migrations the experiment was to command; with fewer the run is unknown.
        input_topic: topic with the input.
        output_topic: topic with the results.
        deadline_s: longest time for each topic, in seconds.
    """

    def ask() -> dict[str, Any]:
        begun = time.monotonic()
        records = read_records(bootstrap, input_topic, deadline_s=deadline_s)
        results = read_results(bootstrap, output_topic, deadline_s=deadline_s)
        partitions = result_partitions(bootstrap, output_topic)
        stored: NextOffsets | None = None if state is None else read_next_offsets(state, _owners(folder))
        read = time.monotonic()
        checked = check(
            records, results, bin_of=bin_of, partitions=partitions, moves=moved_at(folder), next_offsets=stored
        )
        seconds = {"read": round(read - begun, 3), "check": round(time.monotonic() - read, 3)}
        answer = judge(checked.found, read_facts(folder, expected=expected_migrations))
        return {**answer, "undecided": checked.undecided, "seconds": seconds}

    return answered(folder, ask)
