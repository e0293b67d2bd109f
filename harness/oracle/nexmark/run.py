"""Checks one NEXMark run into `oracle.json`."""

import time
from pathlib import Path
from typing import Any

from harness.files import read_json, read_lines
from harness.oracle.bins import BinOf
from harness.oracle.nexmark.check import Rules, check
from harness.oracle.nexmark.tables import read_events, read_json_results
from harness.oracle.offsets import read_offsets
from harness.oracle.run import read_facts, read_moves
from harness.oracle.verdict import answered, judge

__all__ = ["check_nexmark"]

_DEADLINE_S = 300.0


def check_nexmark(
    bootstrap: str,
    folder: Path,
    *,
    query: str,
    checkpoint: Path,
    bin_of: BinOf,
    topics: tuple[str, str],
    expected_migrations: int = 0,
    disorder: int = 0,
) -> dict[str, Any]:
    """Writes oracle.json of a finished run and returns the same; never raises for a bad run.

    Besides what every oracle says there is `measured`, the events of the load that the query reads, and `late`.

    Args:
        bootstrap: broker addresses.
        folder: the run's folder.
        query: q0 to q8.
        checkpoint: the checkpoint folder of the query: its offset and commit logs are read.
        bin_of: bins of keys, see `harness.oracle.bins`.
        topics: input and results topic.
        expected_migrations: migrations the experiment was to command; with fewer the run is unknown.
        disorder: how far events of one partition may be out of order, ms.
    """

    def ask() -> dict[str, Any]:
        begun = time.monotonic()
        log = read_offsets(checkpoint, topics[0])
        events = read_events(bootstrap, topics[0], deadline_s=_DEADLINE_S)
        results = read_json_results(bootstrap, topics[1], deadline_s=_DEADLINE_S)
        read = time.monotonic()
        moves, rules = read_moves(folder), Rules(disorder)
        found, arrived = check(events, results, log.ranges(), query=query, bin_of=bin_of, moves=moves, rules=rules)
        measured = arrived.measured(int(read_json(folder / "load.json").get("start_us", 0)))
        answer = judge(found, read_facts(folder, expected=expected_migrations))
        late = sum(int(line.get("late", 0)) for line in read_lines(folder / "epochs.jsonl"))
        seconds = {"read": round(read - begun, 3), "check": round(time.monotonic() - read, 3)}
        return {**answer, "measured": measured, "late": late, "seconds": seconds}

    return answered(folder, ask)
