"""Checks one run in real time: its two topics, its workers' environments and its own files, into `oracle.json`.

An environment is an LMDB folder `worker-NNNN`. Next offsets are in table 7: the key is the byte 7, the bin (2 bytes)
and the partition (4 bytes), the value the next offset (8 bytes) and a checksum (4 bytes); numbers are big-endian.
"""

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.oracle.columns import MovedBins, NextOffsets, OracleError
from harness.oracle.run import CheckedRun, Watch, read_moves
from harness.oracle.turns.check import check
from harness.oracle.verdict import judge

_TABLE = 7
_KEY, _VALUE = struct.Struct(">BHI"), struct.Struct(">QI")


def read_next_offsets(state: Path, owners: NDArray[np.int64]) -> NextOffsets:
    """Returns the next offsets of every bin as its owner has them.

    Args:
        state: folder of the workers' environments; nobody writes there any more.
        owners: the worker of each bin.

    Raises:
        OracleError: an environment is missing, or holds what is no next offset.
    """
    rows = [
        (bin_, partition, after, worker)
        for worker in np.unique(owners).tolist()
        for bin_, partition, after in _stored(state / f"worker-{worker:04d}")
        if bin_ < len(owners) and owners[bin_] == worker
    ]
    return NextOffsets.of(rows)


def _stored(folder: Path) -> Iterator[tuple[int, int, int]]:
    if not (folder / "data.mdb").exists():
        raise OracleError(f"The environment {folder} is not there.")
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        cursor = txn.cursor()
        alive = cursor.set_range(bytes([_TABLE]))
        while alive and cursor.key()[0] == _TABLE:
            try:
                (_, bin_, partition), (after, _) = _KEY.unpack(cursor.key()), _VALUE.unpack(cursor.value())
            except struct.error as error:
                raise OracleError(f"The environment {folder} holds a next offset of another form: {error}.") from error
            yield bin_, partition, after
            alive = cursor.next()


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


def check_turns(run: CheckedRun, state: Path | None) -> dict[str, Any]:
    """Writes oracle.json of a finished run and returns the same; never raises for a bad run.

    Besides what every oracle says there is `undecided`: bins whose records may have interleaved in too many ways to say
    whether their turns can be explained.

    Args:
        run: what is checked.
        state: folder of the workers' environments; None where a shared store has the state.
    """

    def ask(watch: Watch) -> dict[str, Any]:
        records, results, partitions = run.records(), run.results(), run.partitions()
        stored: NextOffsets | None = None if state is None else read_next_offsets(state, _owners(run.folder))
        watch.read()
        where: dict[str, Any] = {"bin_of": run.bin_of, "moves": moved_at(run.folder), "next_offsets": stored}
        checked = check(records, results, partitions=partitions, **where)
        return {**judge(checked.found, run.facts()), "undecided": checked.undecided, "seconds": watch.seconds()}

    return run.answer(ask)
