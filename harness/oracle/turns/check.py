"""Key-count recomputed where results are numbered by turns: from columns to what was lost, doubled or out of order.

The property: the counts of a key rise, in the partition of its bin, and end with the number of its records; some order
of a bin's records, those of an input partition by their offsets, gives exactly the results of its turns; and what each
bin has stored as its next offset in a partition lies behind the bin's last record there. No epoch of Spark's is used.

Records of an input partition are applied in the order of their offsets, and how those of several partitions interleave
is not known. So a turn is explained if from a place in every partition, which the turns before may have reached, the
next records of each are together those that the turn has counted. A result that is missing in the middle leaves a turn
that nothing explains: a later one would count a record that lies before what is applied already.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from harness.oracle.columns import BinOf, MovedBins, NextOffsets, RawResults, Records
from harness.oracle.differences import Differences
from harness.oracle.keycount import EXAMPLE, ORDERS, bins_table, number_results

_PLACES_MOST = 256  # that the turns so far may have reached, and _STEPS_MOST to look for those of a turn
_STEPS_MOST = 20_000

Place = tuple[int, ...]
Turn = Mapping[int, int]


class UndecidedError(Exception):
    """There are too many ways in which the records may have interleaved."""


def unexplained(inputs: Sequence[Sequence[int]], turns: Sequence[Turn]) -> int | None:
    """Returns the place of the first turn that nothing explains, None where each can be.

    Args:
        inputs: the bin's keys in each input partition, in the order of their offsets.
        turns: by how much each turn's results raise the count of a key.

    Raises:
        UndecidedError: it would take too long to say.
    """
    places: set[Place] = {(0,) * len(inputs)}
    for number, turn in enumerate(turns):
        places = {after for place in places for after in _after(inputs, place, turn)}
        if not places:
            return number
        if len(places) > _PLACES_MOST:
            raise UndecidedError
    return None


def _after(inputs: Sequence[Sequence[int]], place: Place, turn: Turn) -> Iterator[Place]:
    """Yields the places that a turn may have reached from one."""
    total = sum(turn.values())
    if len(inputs) == 2:
        yield from _slid(inputs, place, turn, total)
        return
    seen, left = {place}, [place]
    while left:
        here = left.pop()
        if sum(here) - sum(place) == total:
            yield here
            continue
        for part in _open(inputs, place, here, turn):
            step = (*here[:part], here[part] + 1, *here[part + 1 :])
            if step not in seen:
                seen.add(step)
                left.append(step)
        if len(seen) > _STEPS_MOST:
            raise UndecidedError


def _open(inputs: Sequence[Sequence[int]], start: Place, here: Place, turn: Turn) -> Iterator[int]:
    """Yields the partitions whose next record the turn may have counted, beside those on the way here."""
    ways = zip(inputs, start, here, strict=True)
    taken = Counter(key for keys, low, high in ways for key in keys[low:high])
    for part, at in enumerate(here):
        if at < len(inputs[part]) and taken[key := inputs[part][at]] < turn.get(key, 0):
            yield part


def _slid(inputs: Sequence[Sequence[int]], place: Place, turn: Turn, total: int) -> Iterator[Place]:
    """Yields what `_after` does, of two partitions: n records of the first and all others of the second, for each n."""
    (one, other), (low, lower) = inputs, place
    first = max(0, total - (len(other) - lower))
    last = min(total, len(one) - low)
    if first > last:
        return
    over = Counter(one[low : low + first])
    over.update(other[lower : lower + total - first])
    over.subtract(turn)
    wrong = sum(bool(n) for n in over.values())
    for n in range(first, last + 1):
        if not wrong:
            yield low + n, lower + total - n
        if n < last:
            for key, by in ((one[low + n], 1), (other[lower + total - n - 1], -1)):
                before = over[key]
                over[key] = before + by
                wrong += bool(before + by) - bool(before)


_SQL = (Path(__file__).parent / "keycount.sql").read_text(encoding="utf-8")
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
SELECT b.bin, c.worker, c.epoch, c.turn, c.key, c.count - coalesce(c.count_before, 0), c."partition", c."offset"
FROM counted c JOIN bins b ON c.key = b.key WHERE b.bin IN ({_SOUND}) ORDER BY b.bin, c."partition", c."offset"
"""
_MISSING = """
INSERT INTO finding
SELECT 'lost', 'no order of the records explains the turn: a result before it is missing', epoch, key, "partition",
       "offset", worker, NULL, count
FROM counted WHERE "partition" = $part AND "offset" = $at
"""


@dataclass(frozen=True)
class Checked:
    """What was found, and how many bins' records may have interleaved in too many ways to say."""

    found: Differences
    undecided: int


@dataclass
class _Turn:
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
) -> Checked:
    """Compares results with the counts recomputed from the input.

    Args:
        records: the whole input topic.
        results: the whole results topic, repeats included; their numbers are of the worker's tick and turn.
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
        found = Differences.of(db, "count(*)", EXAMPLE, ORDERS, records=sent, raw=raw, applied="applied")
        return Checked(found, undecided)


def _explain(db: Any) -> int:
    """Adds a finding for each bin with a turn that nothing explains, and returns how many bins are undecided."""
    inputs: dict[int, dict[int, list[int]]] = {}
    for bin_, partition, keys in db.execute(_INPUTS).fetchall():
        inputs.setdefault(bin_, {})[partition] = keys
    undecided = 0
    for bin_, turns in _turns(db).items():
        try:
            place = unexplained(list(inputs[bin_].values()), [turn.rises for turn in turns])
        except UndecidedError:
            undecided += 1
            continue
        if place is not None:
            part, at = turns[place].first
            db.execute(_MISSING, {"part": part, "at": at})
    return undecided


def _turns(db: Any) -> dict[int, list[_Turn]]:
    """Returns the turns of each bin, in the order of their results."""
    out: dict[int, list[_Turn]] = {}
    for bin_, worker, tick, number, key, rise, part, at in db.execute(_RISES).fetchall():
        turns, who = out.setdefault(bin_, []), (worker, tick, number)
        if not turns or turns[-1].who != who:
            turns.append(_Turn(who, {}, (part, at)))
        turns[-1].rises[key] = turns[-1].rises.get(key, 0) + rise
    return out
