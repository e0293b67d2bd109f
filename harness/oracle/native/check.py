"""The oracle on a run of Spark's own count, and the run's latencies, both from its topics and its offset log.

The property: every count from 1 to the number of a key's records is there, none is above it, and a key's results are in
one partition. A record's latency ends with the broker's time of the first result that counts it; which of a key's
records of two input partitions was counted first is not known, and they are taken in the order of their schedule.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.files import JsonLines, read_lines
from harness.oracle.columns import BinOf, MovedBins, OracleError, Records
from harness.oracle.differences import Differences
from harness.oracle.keycount import EXAMPLE, ORDERS, check
from harness.oracle.native.attribute import Arrivals, NativeResults, arrivals_of, as_results, cell_lines
from harness.oracle.read import read_columns, read_ranges
from harness.oracle.run import CheckedRun, Watch
from harness.oracle.verdict import judge

_SQL = (Path(__file__).parent / "each.sql").read_text(encoding="utf-8")


def check_each(
    records: Records, found: NativeResults, *, preloaded: int, bin_of: BinOf, moves: MovedBins
) -> Differences:
    """Compares results with the counts recomputed from the input.

    Args:
        records: the whole input topic.
        found: the whole results topic, repeats included.
        preloaded: keys below it have one record more, which made their state.
        bin_of: bins of keys, array to array.
        moves: bins that changed their owner; a record crosses a migration that is scheduled at its epoch (µs)
            or later.
    """
    count = found.count - (found.key < preloaded)
    of_load = NativeResults(found.partition, found.offset, found.key, count, found.appended_us).take(count > 0)
    keys = np.union1d(records.key, of_load.key)
    with duckdb.connect() as db:
        for name, columns in {"records": records, "results": of_load, "moves": moves}.items():
            db.register(name, columns.table())
        db.register("bins", _bins(keys, bin_of))
        db.execute(_SQL)
        db.execute("CREATE VIEW applied AS SELECT key, scheduled_us AS epoch FROM records")
        sent, raw = len(records), len(of_load)
        return Differences.of(db, "count(*)", EXAMPLE, ORDERS, records=sent, raw=raw, applied="applied")


def _bins(keys: NDArray[np.int64], bin_of: BinOf) -> pa.Table:
    return pa.table({"key": keys, "bin": bin_of(keys)})


def arrivals_in_time(records: Records) -> Arrivals:
    """Returns the input in order of key and schedule, all in one epoch."""
    order = np.lexsort((records.scheduled_us, records.key))
    keys, first, total = np.unique(records.key[order], return_index=True, return_counts=True)
    return Arrivals(records.scheduled_us[order], np.zeros(len(order), np.int64), keys, first, total)


def check_native(run: CheckedRun, checkpoint: Path, *, preloaded: int, each: bool = False) -> dict[str, Any]:
    """Writes cells.jsonl and oracle.json of a run and returns the oracle's answer; never raises for a bad run.

    With `each` the query sends a result for every record, in real time, and Spark's logs are not used.
    """
    folder, bin_of = run.folder, run.bin_of

    def of_records(_: Watch) -> dict[str, Any]:
        records, found = run.records(), _read(run)
        moves = restarts(folder, bin_of.bins, timed=True)
        findings = check_each(records, found, preloaded=preloaded, bin_of=bin_of, moves=moves)
        write_cells(folder, cell_lines(arrivals_in_time(records), found, preloaded=preloaded))
        return judge(findings, run.facts())

    def of_epochs(_: Watch) -> dict[str, Any]:
        ranges, records, found = read_ranges(checkpoint, run.topics[0]), run.records(), _read(run)
        partitions, moves = run.partitions(), restarts(folder, bin_of.bins)
        arrivals = arrivals_of(records, ranges)
        results, repeats = as_results(arrivals, found, preloaded=preloaded, bin_of=bin_of, partitions=partitions)
        findings = check(records, results, ranges, bin_of=bin_of, partitions=partitions, moves=moves)
        answer = judge(findings, run.facts())
        answer["repeats"] += repeats
        write_cells(folder, cell_lines(arrivals, found, preloaded=preloaded))
        return answer

    return run.answer(of_records if each else of_epochs)


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


def _read(run: CheckedRun) -> NativeResults:
    topic = run.topics[1]

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        if any(message.timestamp_type != 1 for message in messages):
            raise OracleError(f"Topic {topic!r} does not carry the broker's time.")
        return {
            "key": np.array([int(message.key) for message in messages], np.int64),
            "count": np.array([int(message.value) for message in messages], np.int64),
            "appended_us": np.array([message.timestamp for message in messages], np.int64) * 1000,
        }

    return read_columns(NativeResults, run.bootstrap, topic, run.deadline_s, columns_of)
