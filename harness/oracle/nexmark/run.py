"""Checks one NEXMark run into `oracle.json`; of one in Spark's own API it also finds the latencies."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from harness.files import read_json, read_lines
from harness.measure.cells import encode_cells, read_epochs
from harness.measure.migrations import Line, passed_over
from harness.oracle.commits import moved_at
from harness.oracle.native import lines_of, restarts, write_cells
from harness.oracle.nexmark.check import (
    Arrived,
    Rules,
    check,
    chosen_events,
    latencies_of,
    load_events,
    read_events,
    read_json_results,
    read_plain_results,
)
from harness.oracle.nexmark.queries import DEFINITIONS
from harness.oracle.read import read_ranges
from harness.oracle.run import CheckedRun, Stopwatch, read_moves
from harness.oracle.verdict import doubted, judge
from impls.mechanisms.native_spark.nexmark_closing import DELAY_MS
from impls.worker.cells import make_cells

_DEADLINE_S = 300.0


def check_nexmark(
    run: CheckedRun, checkpoint: Path, *, query: str, disorder: int = 0, native: bool = False, commits: bool = False,
    by_results: bool = False, second: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Writes oracle.json of a finished run and returns the same; never raises for a bad run.

    Besides what every oracle says there is `measured`, how many latencies there are to be, one for each event of the
    load that the query reads or for each result; and of a query of this runtime `late`. With `native` or `by_results`
    it writes cells.jsonl too.

    Args:
        run: what is checked.
        checkpoint: the checkpoint folder of the query: its offset and commit logs are read.
        query: its name.
        disorder: how far events of one partition may be out of order, ms.
        native: the query is in Spark's own API, whose sink writes at least once: repeated results count as repeats.
        commits: results are numbered by the workers' commits, and Spark's logs say nothing of them: real time.
        second: of a query of two stages the folder with the second one's epochs and events; its migrations, too, have
            to complete.
        by_results: latencies are those of results, from the event that completes each; with `native` another engine's.
    """

    def ask(watch: Stopwatch) -> dict[str, Any]:
        folder, (source, sink) = run.folder, run.topics
        ranges = None if commits else read_ranges(checkpoint, source, several=native)
        events = read_events(run.bootstrap, source, deadline_s=_DEADLINE_S)
        results = (read_plain_results if native else read_json_results)(run.bootstrap, sink, deadline_s=_DEADLINE_S)
        watch.read()
        moves = (
            restarts(folder, run.bin_of.bins, timed=commits)
            if native
            else (moved_at if commits else read_moves)(folder)
        )
        of_spark = native and not commits
        rules = Rules(disorder + DELAY_MS * of_spark, fastest=of_spark, repeats=native)
        found, arrived = check(events, results, ranges, query=query, bin_of=run.bin_of, moves=moves, rules=rules)
        measured = arrived.measured(int(read_json(folder / "load.json").get("start_us", 0)))
        answer = {**judge(found, run.facts()), "measured": measured}
        if by_results:
            due, there = latencies_of(events, results, query=query, disorder=disorder)
            write_cells(folder, lines_of(due, there, np.zeros(len(due), np.int64)))
            answer["measured"] = len(due)
        elif native:
            write_cells(folder, _cells(folder, arrived))
        if native:
            return answer
        stages = [folder] if second is None else [folder, second]
        late = sum(int(line.get("late", 0)) for stage in stages for line in read_epochs(stage / "epochs.jsonl"))
        if second is not None:
            story = read_lines(second / "events.jsonl"), read_epochs(second / "epochs.jsonl")
            answer |= doubts_of_second(answer, *story, run.expected_migrations)
        return {**answer, "late": late, "seconds": watch.seconds()}

    return run.answer(ask)


def doubts_of_second(
    answer: Mapping[str, Any], events: Sequence[Line], epochs: Sequence[Line], expected: int
) -> dict[str, Any]:
    """Returns verdict and reasons of an answer, with those of a second stage that has not migrated as it was to.

    Args:
        answer: of the results.
        events: of the second stage.
        epochs: of it.
        expected: migrations that it was to have at least.
    """
    commanded = len({event["id"] for event in events if event["kind"] == "command"})
    told = [f"Only {commanded} of {expected} migrations were commanded of the second stage."] * (commanded < expected)
    told += [f"Of the second stage, {what}."] if (what := passed_over(events, epochs)) else []
    return {"verdict": doubted(answer["verdict"], told), "reasons": [*answer["reasons"], *told]}


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


def events_read(bootstrap: str, topic: str, query: str) -> int:
    """Returns the number of events in a topic, up to its present end, that a query reads.

    Raises:
        OracleError: the topic cannot be read, or nothing comes of it for five minutes.
    """
    events = read_events(bootstrap, topic, deadline_s=_DEADLINE_S)
    if not len(events):
        return 0
    with duckdb.connect() as db:
        load_events(db, events)
        (number,) = db.execute(f"SELECT count(*) FROM ({chosen_events(DEFINITIONS[query])})").fetchall()[0]
    return int(number)
