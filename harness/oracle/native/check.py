"""The oracle on a run of Spark's own count, and the run's latencies, both from its topics and its offset log."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import JsonLines, read_lines
from harness.oracle.bins import BinOf
from harness.oracle.columns import MovedBins, OracleError
from harness.oracle.keycount import check
from harness.oracle.native.attribute import NativeResults, arrivals_of, as_results, cell_lines
from harness.oracle.native.each import arrivals_in_time, check_each
from harness.oracle.offsets import read_ranges
from harness.oracle.read import read_columns, read_records, result_partitions
from harness.oracle.run import read_facts
from harness.oracle.verdict import answered, judge

__all__ = ["check_native", "restarts", "write_cells"]

_DEADLINE_S = 120.0


def check_native(
    bootstrap: str,
    folder: Path,
    *,
    checkpoint: Path,
    bin_of: BinOf,
    preloaded: int,
    expected_migrations: int,
    topics: tuple[str, str],
    each: bool = False,
) -> dict[str, Any]:
    """Writes cells.jsonl and oracle.json of a run and returns the oracle's answer; never raises for a bad run.

    With `each` the query sends a result for every record, in real time, and Spark's logs are not used.
    """

    def ask() -> dict[str, Any]:
        return of_records() if each else of_epochs()

    def of_records() -> dict[str, Any]:
        records, found = read_records(bootstrap, topics[0], deadline_s=_DEADLINE_S), _read(bootstrap, topics[1])
        moves = restarts(folder, bin_of.bins, timed=True)
        findings = check_each(records, found, preloaded=preloaded, bin_of=bin_of, moves=moves)
        write_cells(folder, cell_lines(arrivals_in_time(records), found, preloaded=preloaded))
        return judge(findings, read_facts(folder, expected=expected_migrations))

    def of_epochs() -> dict[str, Any]:
        ranges = read_ranges(checkpoint, topics[0])
        records = read_records(bootstrap, topics[0], deadline_s=_DEADLINE_S)
        found = _read(bootstrap, topics[1])
        partitions, moves = result_partitions(bootstrap, topics[1]), restarts(folder, bin_of.bins)
        arrivals = arrivals_of(records, ranges)
        results, repeats = as_results(arrivals, found, preloaded=preloaded, bin_of=bin_of, partitions=partitions)
        findings = check(records, results, ranges, bin_of=bin_of, partitions=partitions, moves=moves)
        answer = judge(findings, read_facts(folder, expected=expected_migrations))
        answer["repeats"] += repeats
        write_cells(folder, cell_lines(arrivals, found, preloaded=preloaded))
        return answer

    return answered(folder, ask)


def restarts(folder: Path, bins: int, *, timed: bool = False) -> MovedBins:
    """Returns every bin as moved by the first epoch behind each restart; `timed`, by the time (µs) of its end."""
    ends = [line for line in read_lines(folder / "events.jsonl") if line["kind"] == "migration_end"]
    at = "at_us" if timed else "epoch"
    return MovedBins.of([(int(line[at]), bin_, str(line["id"])) for line in ends for bin_ in range(bins)])


def write_cells(folder: Path, lines: Iterable[dict[str, object]]) -> None:
    """Writes the lines of a run's cells.jsonl, in place of any that are there."""
    (folder / "cells.jsonl").unlink(missing_ok=True)
    with JsonLines(folder / "cells.jsonl") as file:
        for line in lines:
            file.write(line)


def _read(bootstrap: str, topic: str) -> NativeResults:
    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        if any(message.timestamp_type != 1 for message in messages):
            raise OracleError(f"Topic {topic!r} does not carry the broker's time.")
        return {
            "key": np.array([int(message.key) for message in messages], np.int64),
            "count": np.array([int(message.value) for message in messages], np.int64),
            "appended_us": np.array([message.timestamp for message in messages], np.int64) * 1000,
        }

    return read_columns(NativeResults, bootstrap, topic, _DEADLINE_S, columns_of)
