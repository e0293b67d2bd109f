"""The oracle on a run of Spark's own count, and the run's latencies, both from its topics and its offset log.

The property: every count from 1 to the number of a key's records is there, none is above it, and a key's results are in
one partition. A record's latency ends with the broker's time of the first result that counts it; which of a key's
records of two input partitions was counted first is not known, and they are taken in the order of their schedule.

Spark's Kafka sink writes keys and counts alone. The count of a result says which record of its key was the last one
in it, and so its epoch; the broker's time of the result, of the same clock as the schedule, is when it was there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.files import JsonLines, read_lines
from harness.measure.cells import encode_cells
from harness.oracle.columns import BinOf, MovedBins, OracleError, Placed, Ranges, RawResults, Records
from harness.oracle.keycount import EXAMPLE, ORDERS, check
from harness.oracle.read import read_columns, read_ranges
from harness.oracle.run import CheckedRun, Stopwatch
from harness.oracle.verdict import Differences, judge
from impls.worker.cells import make_cells

_COUNT_BITS = 34  # of a code that holds key and count: 2^29 keys of 2^34 records


@dataclass(frozen=True, slots=True)
class NativeResults(Placed):
    """Results as Spark's sink wrote them, repeats included; `appended_us` is the broker's time, exact to 1 ms."""

    key: NDArray[np.int64]
    count: NDArray[np.int64]
    appended_us: NDArray[np.int64]


@dataclass(frozen=True)
class ArrivalsByKey:
    """Records in order of (key, epoch): `first` is where a key of `keys` begins, `total` how many it has."""

    scheduled_us: NDArray[np.int64]
    epoch: NDArray[np.int64]
    keys: NDArray[np.int64]
    first: NDArray[np.int64]
    total: NDArray[np.int64]


def _epochs_of(records: Records, ranges: Ranges) -> NDArray[np.int64]:
    """Returns the epoch of each record, -1 for one in no epoch."""
    epoch = np.full(len(records), -1, np.int64)
    for partition in np.unique(records.partition).tolist():
        rows = np.flatnonzero(records.partition == partition)
        of_partition = np.flatnonzero(ranges.partition == partition)
        of_partition = of_partition[np.argsort(ranges.begin[of_partition])]
        if not len(of_partition):
            continue
        at = np.searchsorted(ranges.begin[of_partition], records.offset[rows], "right") - 1
        inside = (at >= 0) & (records.offset[rows] < ranges.end[of_partition][at])
        epoch[rows[inside]] = ranges.epoch[of_partition][at[inside]]
    return epoch


def arrivals_of(records: Records, ranges: Ranges) -> ArrivalsByKey:
    """Returns the input in order of key and epoch."""
    epoch = _epochs_of(records, ranges)
    order = np.lexsort((epoch, records.key))
    keys, first, total = np.unique(records.key[order], return_index=True, return_counts=True)
    return ArrivalsByKey(records.scheduled_us[order], epoch[order], keys, first, total)


def as_results(
    arrivals: ArrivalsByKey, raw: NativeResults, *, preloaded: int, bin_of: BinOf, partitions: int
) -> tuple[RawResults, int]:
    """Returns results in the form that the oracle checks, and the number of exact repeats left out.

    Keys below `preloaded` have one record more, which made their state. A result whose count no record explains is
    given an epoch behind all others, where it has no record. The sink chooses partitions by its own hash; a key that is
    found in two is reported in a partition of another bin.
    """
    count = raw.count - (raw.key < preloaded)
    rows = np.flatnonzero(count > 0)
    rows, repeats = _without_repeats(raw, rows)
    key, count, partition = raw.key[rows], count[rows], raw.partition[rows]
    belongs = bin_of(key) * partitions // bin_of.bins
    home = _first_partition(key, partition)
    epoch = _epoch_of_count(arrivals, key, count)
    index, none = np.arange(len(rows), dtype=np.int64), np.zeros(len(rows), np.int64)
    results = RawResults(
        np.where(partition == home, belongs, (belongs + 1) % partitions).astype(np.int32), raw.offset[rows],
        partition.astype(np.int32), none, epoch, index, none, key, count,
    )  # fmt: skip
    order = np.lexsort((results.offset, results.partition))
    return results.take(order), repeats


def _without_repeats(found: NativeResults, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Returns the rows without later ones of the same partition, key and count: the sink is at-least-once."""
    _, first = np.unique(
        np.stack([found.partition[rows], found.key[rows], found.count[rows]]), axis=1, return_index=True
    )
    return rows[np.sort(first)], len(rows) - len(first)


def _first_partition(key: NDArray[np.int64], partition: NDArray[np.int32]) -> NDArray[np.int32]:
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    home: NDArray[np.int32] = partition[first][inverse]
    return home


def _epoch_of_count(arrivals: ArrivalsByKey, key: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    at = np.minimum(np.searchsorted(arrivals.keys, key), max(len(arrivals.keys) - 1, 0))
    known = (arrivals.keys[at] == key) & (count <= arrivals.total[at])
    epoch = np.full(len(key), int(arrivals.epoch.max(initial=0)) + 1, np.int64)
    epoch[known] = arrivals.epoch[(arrivals.first[at] + count - 1)[known]]
    return epoch


def cell_lines(arrivals: ArrivalsByKey, results: NativeResults, *, preloaded: int) -> list[dict[str, object]]:
    """Returns the lines of cells.jsonl: each record's latency from its schedule to the result that counts it.

    A record without a result has no latency. The records of an epoch whose results came in the same millisecond share
    a line.
    """
    count = results.count - (results.key < preloaded)
    done = _done_us(arrivals, results.key, count, results.appended_us)
    there = np.flatnonzero((done >= 0) & (arrivals.epoch >= 0))
    return lines_of(arrivals.scheduled_us[there], done[there], arrivals.epoch[there])


def lines_of(
    scheduled_us: NDArray[np.int64], done_us: NDArray[np.int64], epoch: NDArray[np.int64]
) -> list[dict[str, object]]:
    """Returns the lines of cells.jsonl of latencies from scheduled times to those at which results were there, (n,)."""
    lines: list[dict[str, object]] = []
    order = np.lexsort((done_us, epoch))
    edges = np.flatnonzero(np.diff(done_us[order]) | np.diff(epoch[order])) + 1
    for number, rows in enumerate(np.split(order, edges) if len(order) else []):
        at = int(done_us[rows[0]])
        cells, _ = make_cells(scheduled_us[rows], at, np.zeros(len(rows), bool))
        lines.append({"epoch": int(epoch[rows[0]]), "worker": number, "done_us": at, "cells": encode_cells(cells)})
    return lines


def _done_us(
    arrivals: ArrivalsByKey, key: NDArray[np.int64], count: NDArray[np.int64], appended_us: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns for each arrival when the first result of its key that counts it was appended, -1 if there is none."""
    rank = np.arange(len(arrivals.epoch)) - np.repeat(arrivals.first, arrivals.total) + 1
    owner = np.repeat(np.arange(len(arrivals.keys)), arrivals.total)
    at = np.minimum(np.searchsorted(arrivals.keys, key), max(len(arrivals.keys) - 1, 0))
    mine = np.flatnonzero((count > 0) & (arrivals.keys[at] == key))
    codes = (at[mine] << _COUNT_BITS) | count[mine]
    order = np.lexsort((appended_us[mine], codes))
    codes, times = codes[order], appended_us[mine][order]
    wanted = (owner << _COUNT_BITS) | rank
    place = np.searchsorted(codes, wanted)
    inside = np.minimum(place, max(len(codes) - 1, 0))
    found = (
        (place < len(codes)) & ((codes[inside] >> _COUNT_BITS) == owner) if len(codes) else np.zeros(len(owner), bool)
    )
    return np.where(found, times[inside] if len(codes) else -1, -1)


_SQL = (Path(__file__).parent / "native.sql").read_text(encoding="utf-8")


def check_each(
    records: Records, results: NativeResults, *, preloaded: int, bin_of: BinOf, moves: MovedBins
) -> Differences:
    """Compares results with the counts recomputed from the input.

    Args:
        records: the whole input topic.
        results: the whole results topic, repeats included.
        preloaded: keys below it have one record more, which made their state.
        bin_of: bins of keys, array to array.
        moves: bins that changed their owner; a record crosses a migration that is scheduled at its epoch (µs)
            or later.
    """
    count = results.count - (results.key < preloaded)
    of_load = NativeResults(results.partition, results.offset, results.key, count, results.appended_us).take(count > 0)
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


def arrivals_in_time(records: Records) -> ArrivalsByKey:
    """Returns the input in order of key and schedule, all in one epoch."""
    order = np.lexsort((records.scheduled_us, records.key))
    keys, first, total = np.unique(records.key[order], return_index=True, return_counts=True)
    return ArrivalsByKey(records.scheduled_us[order], np.zeros(len(order), np.int64), keys, first, total)


def check_native(run: CheckedRun, checkpoint: Path, *, preloaded: int, each: bool = False) -> dict[str, Any]:
    """Writes cells.jsonl and oracle.json of a run and returns the oracle's answer; never raises for a bad run.

    With `each` the query sends a result for every record, in real time, and Spark's logs are not used.
    """
    folder, bin_of = run.folder, run.bin_of

    def of_records(_: Stopwatch) -> dict[str, Any]:
        records, raw = run.records(), _read(run)
        moves = restarts(folder, bin_of.bins, timed=True)
        findings = check_each(records, raw, preloaded=preloaded, bin_of=bin_of, moves=moves)
        write_cells(folder, cell_lines(arrivals_in_time(records), raw, preloaded=preloaded))
        return judge(findings, run.facts())

    def of_epochs(_: Stopwatch) -> dict[str, Any]:
        ranges, records, raw = read_ranges(checkpoint, run.topics[0]), run.records(), _read(run)
        partitions, moves = run.partitions(), restarts(folder, bin_of.bins)
        arrivals = arrivals_of(records, ranges)
        results, repeats = as_results(arrivals, raw, preloaded=preloaded, bin_of=bin_of, partitions=partitions)
        findings = check(records, results, ranges, bin_of=bin_of, partitions=partitions, moves=moves)
        answer = judge(findings, run.facts())
        answer["repeats"] += repeats
        write_cells(folder, cell_lines(arrivals, raw, preloaded=preloaded))
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
