"""Key-count recomputed from the input: a pure function from columns to what was lost, doubled, wrong or out of order.

The property: for every key an epoch touched there is exactly one result of that epoch, it is the number of the key's
records up to and including that epoch, it is in the partition of its bin, and the results of a key are in the order of
its epochs; every input record belongs to exactly one epoch and is counted exactly once. A record belongs to the epoch
whose offsets hold it or, if its bin was moving and queued it there, to the epoch that released the queue.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from harness.oracle.columns import BinOf, MovedBins, Ranges, RawResults, Records, Waits
from harness.oracle.verdict import NUMBERED, Differences

_SQL, _MISNUMBERED = (
    (Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("keycount.sql", "misnumbered.sql")
)
_WAITED = "SELECT count(*) FILTER (waited > 0), coalesce(max(waited), 0) FROM placed"

EXAMPLE = """
SELECT why, epoch, key, "partition", "offset", worker, expected, found FROM finding WHERE class = $class
ORDER BY {order} LIMIT 1
"""

ORDERS = {
    "first": 'epoch NULLS LAST, "partition", "offset", key',
    "worst": 'abs(coalesce(expected, 0) - coalesce(found, 0)) DESC, epoch NULLS LAST, "partition", "offset", key',
    "last": 'epoch DESC NULLS FIRST, "partition" DESC, "offset" DESC, key DESC',
}


def bins_table(records: Records, results: RawResults, bin_of: BinOf, partitions: int) -> pa.Table:
    """Returns the bin of every key, and the partition that is home to the bin's results."""
    keys = np.union1d(records.key, results.key)
    bins = bin_of(keys)
    return pa.table({"key": keys, "bin": bins, "home": bins * partitions // bin_of.bins})


def number_results(db: Any) -> None:
    """Makes the tables numbered and misnumbered from results and bins."""
    db.execute(NUMBERED)
    db.execute(_MISNUMBERED)


def check(
    records: Records,
    results: RawResults,
    ranges: Ranges,
    *,
    bin_of: BinOf,
    partitions: int,
    moves: MovedBins | None = None,
    waits: Waits | None = None,
) -> Differences:
    """Compares results with the counts recomputed from the input.

    Args:
        records: the whole input topic.
        results: the whole results topic, repeats included.
        ranges: offsets of each committed epoch.
        bin_of: bins of keys, array to array.
        partitions: partitions of the results topic; a bin's results belong into partition
            bin * partitions // bins.
        moves: bins that changed their owner, to count the records that crossed a migration.
        waits: bins with queued records; those of bins without a move are not accepted.
    """
    with duckdb.connect() as db:
        for name, columns in {"records": records, "results": results, "ranges": ranges}.items():
            db.register(name, columns.table())
        db.register("moves", (moves or MovedBins.of([])).table())
        db.register("bins", bins_table(records, results, bin_of, partitions))
        db.register("waits", (waits or Waits.of([])).table())
        number_results(db)
        db.execute(_SQL)
        (waited, longest), *_ = db.execute(_WAITED).fetchall()
        found = Differences.of(
            db, "count(*)", EXAMPLE, ORDERS, records=len(records), raw=len(results), applied="placed"
        )
        return replace(found, waited=waited, longest_wait=longest)
