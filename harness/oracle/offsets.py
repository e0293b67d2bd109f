"""Which offsets each committed epoch absorbed, from the offset and commit logs in Spark's checkpoint.

A file `offsets/<epoch>` holds a version line, a line of metadata, and a line per source with the offsets at which the
epoch ends; it is written before the epoch runs. `commits/<epoch>` appears when the epoch is done.
"""

import json
from pathlib import Path

import numpy as np

from harness.oracle.columns import OracleError, Ranges

__all__ = ["consumed_records", "read_ranges"]

Ends = dict[int, int]


def _numbered(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []


def _kafka_ends(line: str, topic: str) -> Ends | None:
    """Returns the end offsets in a source's line, None when the line is another source's."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    ends = data.get(topic) if isinstance(data, dict) else None
    return {int(p): int(end) for p, end in ends.items()} if isinstance(ends, dict) else None


def _epoch_ends(file: Path, topic: str, *, several: bool = False) -> Ends:
    found = [ends for line in file.read_text().splitlines() if (ends := _kafka_ends(line, topic)) is not None]
    if several and found:
        return {p: min(ends.get(p, 0) for ends in found) for p in sorted({p for ends in found for p in ends})}
    if len(found) > 1:
        raise OracleError(f"{file} names topic {topic!r} {len(found)} times: one source per topic can be checked.")
    # A source that has delivered nothing yet is written as a dash: its offsets are those of the epoch before.
    return found[0] if found else {}


def consumed_records(checkpoint: Path, topic: str) -> int:
    """Returns how many records the newest committed epoch and those before it have absorbed, 0 before the first."""
    for epoch in reversed(_numbered(checkpoint / "commits")):
        if ends := _epoch_ends(checkpoint / "offsets" / str(epoch), topic, several=True):
            return sum(ends.values())
    return 0


def read_ranges(checkpoint: Path, topic: str, *, several: bool = False) -> Ranges:
    """Returns the offsets that each committed epoch of a query absorbed, without empty ranges, from offset 0 on.

    With `several` the query may read the topic more than once, as a join with itself does, and what counts is what all
    of its sources have read.

    Raises:
        OracleError: an epoch is missing from the logs in the checkpoint folder, or none is committed.
    """
    begun, committed = _numbered(checkpoint / "offsets"), _numbered(checkpoint / "commits")
    if not committed:
        raise OracleError(f"No epoch is committed in {checkpoint}.")
    missing = sorted(set(range(committed[-1] + 1)) - (set(begun) & set(committed)))
    if missing:
        raise OracleError(
            f"The logs in {checkpoint} lack {len(missing)} epochs, first {missing[0]}:"
            " set spark.sql.streaming.minBatchesToRetain above the number of epochs."
        )
    rows, at = list[tuple[int, int, int, int]](), Ends()
    for epoch in committed:
        ends = _epoch_ends(checkpoint / "offsets" / str(epoch), topic, several=several)
        rows += [(epoch, p, at.get(p, 0), end) for p, end in ends.items() if end > at.get(p, 0)]
        at |= ends
    epochs, partitions, first, end_ = np.array(rows, np.int64).reshape(-1, 4).T
    return Ranges(epochs, partitions.astype(np.int32), first, end_)
