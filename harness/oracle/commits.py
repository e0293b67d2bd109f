"""Key-count recomputed where results are numbered by commits: what was lost, doubled or out of order.

The property: the counts of a key rise, in the partition of its bin, and end with the number of its records; some order
of a bin's records, those of an input partition by their offsets, gives exactly the results of its commits; and what
each bin has stored as its next offset in a partition lies behind the bin's last record there. No epoch of Spark's is
used.

Records of an input partition are applied in the order of their offsets, and how those of several partitions interleave
is not known. So a commit is explained if from a place in every partition, which the commits before may have reached,
the next records of each are together those that the commit has counted. A result that is missing in the middle leaves
a commit that nothing explains: a later one would count a record that lies before what is applied already.

A worker's environment is an LMDB folder `worker-NNNN`. What bins have applied is in table 7: the key is the byte 7, the
bin (2 bytes) and the input partition (8 bytes), which of the query's only topic is the partition; the value is the last
offset and the last row of that record (8 bytes each) and a checksum (4 bytes); numbers are big-endian.
"""

import base64
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import lmdb
import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.oracle.columns import BinOf, MovedBins, NextOffsets, OracleError, RawResults, Records
from harness.oracle.keycount import EXAMPLE, ORDERS, bins_table, number_results
from harness.oracle.run import CheckedRun, Stopwatch, read_moves
from harness.oracle.verdict import Differences, judge

_PLACES_MOST = 256  # that the commits so far may have reached, and _STEPS_MOST to look for those of a commit
_STEPS_MOST = 20_000

Place = tuple[int, ...]
Commit = Mapping[int, int]


class UndecidedError(Exception):
    """There are too many ways in which the records may have interleaved."""


def unexplained(inputs: Sequence[Sequence[int]], commits: Sequence[Commit]) -> int | None:
    """Returns the place of the first commit that nothing explains, None where each can be.

    Args:
        inputs: the bin's keys in each input partition, in the order of their offsets.
        commits: by how much each commit's results raise the count of a key.

    Raises:
        UndecidedError: it would take too long to say.
    """
    places: set[Place] = {(0,) * len(inputs)}
    for number, commit in enumerate(commits):
        places = {after for place in places for after in _after(inputs, place, commit)}
        if not places:
            return number
        if len(places) > _PLACES_MOST:
            raise UndecidedError
    return None


def _after(inputs: Sequence[Sequence[int]], place: Place, commit: Commit) -> Iterator[Place]:
    """Yields the places that a commit may have reached from one."""
    total = sum(commit.values())
    if len(inputs) == 2:
        yield from _slid(inputs, place, commit, total)
        return
    seen, left = {place}, [place]
    while left:
        here = left.pop()
        if sum(here) - sum(place) == total:
            yield here
            continue
        for part in _open(inputs, place, here, commit):
            step = (*here[:part], here[part] + 1, *here[part + 1 :])
            if step not in seen:
                seen.add(step)
                left.append(step)
        if len(seen) > _STEPS_MOST:
            raise UndecidedError


def _open(inputs: Sequence[Sequence[int]], start: Place, here: Place, commit: Commit) -> Iterator[int]:
    """Yields the partitions whose next record the commit may have counted, beside those on the way here."""
    ways = zip(inputs, start, here, strict=True)
    taken = Counter(key for keys, low, high in ways for key in keys[low:high])
    for part, at in enumerate(here):
        if at < len(inputs[part]) and taken[key := inputs[part][at]] < commit.get(key, 0):
            yield part


def _slid(inputs: Sequence[Sequence[int]], place: Place, commit: Commit, total: int) -> Iterator[Place]:
    """Yields what `_after` does, of two partitions: n records of the first and all others of the second, for each n."""
    (one, other), (low, lower) = inputs, place
    first = max(0, total - (len(other) - lower))
    last = min(total, len(one) - low)
    if first > last:
        return
    over = Counter(one[low : low + first])
    over.update(other[lower : lower + total - first])
    over.subtract(commit)
    wrong = sum(bool(n) for n in over.values())
    for n in range(first, last + 1):
        if not wrong:
            yield low + n, lower + total - n
        if n < last:
            for key, by in ((one[low + n], 1), (other[lower + total - n - 1], -1)):
                before = over[key]
                over[key] = before + by
                wrong += bool(before + by) - bool(before)


_SQL = (Path(__file__).parent / "commits.sql").read_text(encoding="utf-8")
# A key's records up to the last result that counts them, of bins in which nothing else is wrong.
_SOUND = """
SELECT bin FROM bins WHERE bin NOT IN (
    SELECT bin FROM bins JOIN finding USING (key) WHERE key IS NOT NULL AND bin IS NOT NULL)
"""
_INPUTS = f"""
SELECT b.bin, r."partition", list(r.key ORDER BY r."offset") FROM records r JOIN bins b ON r.key = b.key
WHERE b.bin IN ({_SOUND}) GROUP BY ALL
"""
_RISES = f"""
SELECT b.bin, c.worker, c.epoch, c."commit", c.key, c.count - coalesce(c.count_before, 0), c."partition", c."offset"
FROM counted c JOIN bins b ON c.key = b.key WHERE b.bin IN ({_SOUND}) ORDER BY b.bin, c."partition", c."offset"
"""
_MISSING = """
INSERT INTO finding
SELECT 'lost', 'no order of the records explains the commit: a result before it is missing', epoch, key, "partition",
       "offset", worker, NULL, count
FROM counted WHERE "partition" = $part AND "offset" = $at
"""


@dataclass
class _Commit:
    who: tuple[int, int, int]
    rises: dict[int, int]
    first: tuple[int, int]


def check(
    records: Records,
    results: RawResults,
    *,
    bin_of: BinOf,
    partitions: int,
    moves: MovedBins | None = None,
    next_offsets: NextOffsets | None = None,
) -> Differences:
    """Compares results with the counts recomputed from the input; a bin is undecided that `unexplained` cannot decide.

    Args:
        records: the whole input topic.
        results: the whole results topic, repeats included; their numbers are of the worker's epoch and commit.
        bin_of: bins of keys, array to array.
        partitions: partitions of the results topic.
        moves: bins that changed their owner; their epoch is the time (µs since 1970) from which a record that is
            scheduled crosses the migration.
        next_offsets: what the bins have stored at the end; not checked if not given.
    """
    with duckdb.connect() as db:
        for name, columns in {"records": records, "results": results, "moves": moves or MovedBins.of([])}.items():
            db.register(name, columns.table())
        db.register("next_offsets", (next_offsets or NextOffsets.of([])).table())
        db.register("bins", bins_table(records, results, bin_of, partitions))
        number_results(db)
        db.execute(_SQL, {"offsets": next_offsets is not None})
        undecided = _explain(db)
        db.execute("CREATE VIEW applied AS SELECT key, scheduled_us AS epoch FROM records")
        sent, raw = len(records), len(results)
        how: dict[str, Any] = {"records": sent, "raw": raw, "applied": "applied", "undecided": undecided}
        return Differences.of(db, "count(*)", EXAMPLE, ORDERS, **how)


def _explain(db: Any) -> int:
    """Adds a finding for each bin with a commit that nothing explains, and returns how many bins are undecided."""
    inputs: dict[int, dict[int, list[int]]] = {}
    for bin_, partition, keys in db.execute(_INPUTS).fetchall():
        inputs.setdefault(bin_, {})[partition] = keys
    undecided = 0
    for bin_, commits in _commits(db).items():
        try:
            place = unexplained(list(inputs[bin_].values()), [commit.rises for commit in commits])
        except UndecidedError:
            undecided += 1
            continue
        if place is not None:
            part, at = commits[place].first
            db.execute(_MISSING, {"part": part, "at": at})
    return undecided


def _commits(db: Any) -> dict[int, list[_Commit]]:
    """Returns the commits of each bin, in the order of their results."""
    out: dict[int, list[_Commit]] = {}
    for bin_, worker, epoch, number, key, rise, part, at in db.execute(_RISES).fetchall():
        commits, who = out.setdefault(bin_, []), (worker, epoch, number)
        if not commits or commits[-1].who != who:
            commits.append(_Commit(who, {}, (part, at)))
        commits[-1].rises[key] = commits[-1].rises.get(key, 0) + rise
    return out


_TABLE = 7
_KEY, _VALUE = struct.Struct(">BHq"), struct.Struct(">QQI")


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
                (_, bin_, partition), (last, _, _) = _KEY.unpack(cursor.key()), _VALUE.unpack(cursor.value())
            except struct.error as error:
                raise OracleError(f"The environment {folder} holds a next offset of another form: {error}.") from error
            yield bin_, partition, last + 1
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


def check_commits(run: CheckedRun, state: Path | None) -> dict[str, Any]:
    """Writes oracle.json of a finished run and returns the same; never raises for a bad run.

    Args:
        run: what is checked.
        state: folder of the workers' environments; None where a shared store has the state.
    """

    def ask(watch: Stopwatch) -> dict[str, Any]:
        records, results, partitions = run.records(), run.results(), run.partitions()
        stored: NextOffsets | None = None if state is None else read_next_offsets(state, _owners(run.folder))
        watch.read()
        where: dict[str, Any] = {"bin_of": run.bin_of, "moves": moved_at(run.folder), "next_offsets": stored}
        found = check(records, results, partitions=partitions, **where)
        return {**judge(found, run.facts()), "seconds": watch.seconds()}

    return run.answer(ask)
