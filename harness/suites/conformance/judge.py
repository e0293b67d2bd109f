"""The verdict on a tour, from what was watched and what the oracle finds: one row per case."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.oracle.columns import (
    BinOf,
    MovedBins,
    NextOffsets,
    Ranges,
    RawResults,
    Records,
    Waits,
    dense_bins,
    hash_bins,
)
from harness.oracle.commits import check as check_commits
from harness.oracle.keycount import check
from harness.oracle.verdict import Differences, Facts, doubted, judge, merge
from harness.suites.conformance.bounds import completes
from harness.suites.conformance.cases import BINS, Tour, commands_of
from harness.suites.conformance.watch import Delta, Watch

NUMBER_OF_KEYS = 4096
_DELTA_BYTES = {"dense": 16, "hash": 23}  # a changed key in the changelog: slot and count; name, count and checksum


@dataclass(frozen=True)
class Row:
    """The outcome of a case; bytes and epochs are sums over its migrations, `bound` is None when there is no end.

    `network_bytes` are those of `moved_bytes` that came from another host.
    """

    mechanism: str
    operator: str
    scenario: str
    keys: str
    verdict: str
    epochs: int
    bound: int | None
    moved_bytes: int
    must_bytes: int
    replicated_bytes: int
    reasons: Sequence[str] = ()
    network_bytes: int = 0

    @property
    def good(self) -> bool:
        """Whether the case shows what it is to show."""
        return self.verdict == "valid"


def bins_of(operator: str) -> BinOf:
    """Returns the bins of keys under an operator."""
    return dense_bins(NUMBER_OF_KEYS, BINS) if operator == "dense" else hash_bins(BINS)


def _scenario_of(label: str) -> str:
    """Returns the scenario that a command's label names."""
    return label.rpartition(" ")[0]


def rows_of(
    tour: Tour,
    watch: Watch,
    records: Records,
    results: RawResults,
    ranges: Ranges | None,
    *,
    partitions: int,
    sent: int,
    stored: NextOffsets | None = None,
) -> list[Row]:
    """Returns a row for each case of a tour that has ended.

    A case is valid when the oracle finds the whole output right and nothing went wrong in the case itself.

    Args:
        tour: what was run.
        watch: what was watched.
        records: the input.
        results: the output.
        ranges: the offsets of each epoch; None in real time.
        partitions: of the results topic.
        sent: number of records that were sent.
        stored: in real time what bins have stored as their next offsets, None where that is not known.
    """
    watch.close()
    if ranges is None:
        differences = _found_by_commits(tour, watch, records, results, partitions=partitions, stored=stored)
    else:
        differences = check(
            records, results, ranges, bin_of=bins_of(tour.operator), partitions=partitions,
            moves=MovedBins.of(watch.moves), waits=Waits.of(watch.waits),
        )  # fmt: skip
    crossed = [one for one in watch.migrations.values() if one.must and not one.superseded]
    must_cross = frozenset(one.id for one in crossed) if completes(tour.mechanism) else frozenset()
    done = frozenset(one.id for one in watch.migrations.values() if one.done >= 0)
    answer = judge(differences, Facts(sent, must_cross, done))
    changes = None if ranges is None else _changes(tour, records, ranges)
    return [_row(tour, scenario, watch, answer, changes) for scenario in tour.scenarios]


def _found_by_commits(
    tour: Tour, watch: Watch, records: Records, results: RawResults, *, partitions: int, stored: NextOffsets | None
) -> Differences:
    moves = MovedBins.of(watch.timed_moves())
    where: dict[str, Any] = {"bin_of": bins_of(tour.operator), "partitions": partitions}
    return check_commits(records, results, moves=moves, next_offsets=stored, **where)


Changes = dict[int, list[tuple[int, int]]]


def _changes(tour: Tour, records: Records, ranges: Ranges) -> Changes:
    """Returns {bin: [(epoch, key)]} of all records by the epoch in which they arrived."""
    out: Changes = defaultdict(list)
    bins = bins_of(tour.operator)(records.key)
    for epoch, partition, begin, end in zip(
        ranges.epoch.tolist(), ranges.partition.tolist(), ranges.begin.tolist(), ranges.end.tolist(), strict=True
    ):
        mine = np.flatnonzero((records.partition == partition) & (records.offset >= begin) & (records.offset < end))
        for bin_, key in zip(bins[mine].tolist(), records.key[mine].tolist(), strict=True):
            out[bin_].append((epoch, key))
    return out


def _delta_bytes(delta: Delta, operator: str, changes: Changes) -> int:
    keys = {key for epoch, key in changes.get(delta.bin, []) if delta.after < epoch <= delta.upto}
    return len(keys) * _DELTA_BYTES[operator]


def _examples(answer: dict[str, Any]) -> list[str]:
    """Returns the first finding of each class in words."""
    firsts = [(kind, found["first"]) for kind, found in answer["examples"].items()]
    return [f"first {kind}: " + ", ".join(f"{name} {value}" for name, value in first.items()) for kind, first in firsts]


def _row(tour: Tour, scenario: str, watch: Watch, answer: dict[str, Any], changes: Changes | None) -> Row:
    migrations = [migration for migration in watch.migrations.values() if _scenario_of(migration.label) == scenario]
    reasons = [f"{label}: {words}" for label, words in watch.problems if _scenario_of(label) in {scenario, ""}]
    commanded = commands_of(scenario)
    doubts = [f"{len(migrations)} of {commanded} migrations were seen"] if len(migrations) < commanded else []
    moved = sum(migration.moved_bytes for migration in migrations)
    must = sum(migration.must_bytes for migration in migrations)
    if changes is not None:
        must += sum(
            _delta_bytes(delta, tour.operator, changes) for migration in migrations for delta in migration.deltas
        )
    # In real time bins grow while they move, and no log says what changed in them between two epochs.
    most = must if changes is not None else sum(migration.most_bytes for migration in migrations)
    if not must <= moved <= most:
        reasons.append(f"{moved} bytes were moved and {must} had to be")
    return Row(
        tour.mechanism,
        tour.operator,
        scenario,
        tour.keys,
        merge([doubted(answer["verdict"], doubts), "invalid" if reasons else "valid"]),
        sum(migration.epochs for migration in migrations),
        sum(migration.bound for migration in migrations) if completes(tour.mechanism) else None,
        moved,
        must,
        sum(migration.replicated_bytes for migration in migrations),
        (*answer["reasons"], *_examples(answer), *doubts, *reasons),
        sum(migration.network_bytes for migration in migrations),
    )
