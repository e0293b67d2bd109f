"""Spark's own count in real time recomputed: it sends a result for every record, at least once.

The property: every count from 1 to the number of a key's records is there, none is above it, and a key's results are in
one partition. A record's latency ends with the broker's time of the first result that counts it; which of a key's
records of two input partitions was counted first is not known, and they are taken in the order of their schedule.
"""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.oracle.bins import BinOf
from harness.oracle.columns import MovedBins, Records
from harness.oracle.differences import Differences
from harness.oracle.keycount import EXAMPLE, ORDERS
from harness.oracle.native.attribute import Arrivals, NativeResults

__all__ = ["arrivals_in_time", "check_each"]

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
