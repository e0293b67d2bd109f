"""The oracle on a run of a NEXMark query in Spark's own API, and the run's latencies, from its topics and its logs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.files import JsonLines, read_json, read_lines
from harness.measure.cells import encode_cells
from harness.oracle.bins import BinOf
from harness.oracle.native.check import restarts
from harness.oracle.nexmark.check import Arrived, Rules, check
from harness.oracle.nexmark.tables import read_events, read_plain_results
from harness.oracle.offsets import read_offsets
from harness.oracle.run import read_facts
from harness.oracle.verdict import answered, judge
from impls.mechanisms.native_spark.nexmark import DELAY_MS
from impls.worker.cells import make_cells

__all__ = ["check_native_nexmark"]

_DEADLINE_S = 300.0
_RULES = Rules(DELAY_MS, fastest=True, repeats=True)


def check_native_nexmark(
    bootstrap: str,
    folder: Path,
    *,
    query: str,
    checkpoint: Path,
    bin_of: BinOf,
    bins: int,
    topics: tuple[str, str],
    expected_migrations: int,
) -> dict[str, Any]:
    """Writes cells.jsonl and oracle.json of a run and returns the oracle's answer; never raises for a bad run.

    Spark's sink writes at least once: results that are repeated are counted as repeats.
    """

    def ask() -> dict[str, Any]:
        events = read_events(bootstrap, topics[0], deadline_s=_DEADLINE_S)
        results = read_plain_results(bootstrap, topics[1], deadline_s=_DEADLINE_S)
        ranges = read_offsets(checkpoint, topics[0], several=True).ranges()
        moves = restarts(folder, bins)
        found, arrived = check(events, results, ranges, query=query, bin_of=bin_of, moves=moves, rules=_RULES)
        measured = arrived.measured(int(read_json(folder / "load.json").get("start_us", 0)))
        answer = {**judge(found, read_facts(folder, expected=expected_migrations)), "measured": measured}
        (folder / "cells.jsonl").unlink(missing_ok=True)
        with JsonLines(folder / "cells.jsonl") as file:
            for line in _cells(folder, arrived):
                file.write(line)
        return answer

    return answered(folder, ask)


def _cells(folder: Path, arrived: Arrived) -> Iterator[dict[str, object]]:
    """Yields a line per epoch: the latency of its records to the end of its work, the commit log not counted."""
    done = {line["epoch"]: int(line["done_us"]) for line in read_lines(folder / "epochs.jsonl")}
    order = np.lexsort((arrived.scheduled_us, arrived.epoch))
    edges = np.flatnonzero(np.diff(arrived.epoch[order])) + 1
    for rows in np.split(order, edges) if len(order) else ():
        number = int(arrived.epoch[rows[0]])
        if number in done:
            cells, _ = make_cells(arrived.scheduled_us[rows], done[number], np.zeros(len(rows), bool))
            yield {"epoch": number, "worker": 0, "done_us": done[number], "cells": encode_cells(cells)}
