"""Correct and broken histories of key-count in turns, made from a seed: records come in pieces, and bins move."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from histories import BINS, INPUTS, KEYS, OUTPUTS, WORKERS, bin_of, raw_results

from harness.oracle.columns import MovedBins, NextOffsets, RawResults, Records
from harness.oracle.commits import check
from harness.oracle.verdict import Differences

RECORDS, MOVED_AFTER, COMMITS = 500, 0.5, 6  # so many commits an epoch
FAULTS = ("lost bin", "doubled record", "skipped record", "commit sent under two numbers")


@dataclass
class _Run:
    rng: random.Random
    inputs: list[list[int]]
    fault: str
    partitions: int
    counts: dict[int, int] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)  # of results, by worker and epoch
    topic: list[list[tuple[int, ...]]] = field(default_factory=lambda: [[] for _ in range(OUTPUTS)])
    done: dict[tuple[int, int], int] = field(default_factory=dict)

    def commit(self, worker: int, taken: list[tuple[int, int, int]]) -> None:
        """A worker applies (partition, offset, key) in order and sends a result per key."""
        touched: dict[int, int] = {}
        for partition, offset, key in taken:
            self.done[bin_of(key), partition] = offset + 1
            self.counts[key] = touched[key] = self.counts.get(key, 0) + 1
        number = self.commits[worker] = self.commits.get(worker, -1) + 1
        epoch, commit = divmod(number, COMMITS)
        first = self.numbers.get((worker, epoch), 0)
        self.numbers[worker, epoch] = first + len(touched)
        found = enumerate(sorted(touched.items()), first)
        rows = [(key, count, worker, 1, epoch, i, commit) for i, (key, count) in found]
        if self.rng.random() < 0.2:  # sent twice, as after a crash
            rows = rows[: self.rng.randint(0, len(rows))] + rows
        for row in rows:
            self.topic[bin_of(row[0]) * OUTPUTS // BINS].append(row)


@dataclass(frozen=True)
class CommitHistory:
    """What a run in real time leaves behind for the oracle."""

    records: Records
    results: RawResults
    moves: MovedBins
    offsets: NextOffsets

    def found(self) -> Differences:
        found = check(
            self.records, self.results, bin_of=bin_of, partitions=OUTPUTS, moves=self.moves, next_offsets=self.offsets
        )
        assert not found.undecided
        return found

    def take_results(self, rows: Any) -> "CommitHistory":
        """The same history with these rows as its results topic, offsets numbered anew."""
        taken = self.results.take(np.asarray(rows))
        taken = taken.take(np.argsort(taken.partition, kind="stable"))
        offsets = np.concatenate([np.arange(np.sum(taken.partition == p)) for p in range(OUTPUTS)])
        return replace(self, results=replace(taken, offset=offsets))


def make(seed: int, *, fault: str = "", partitions: int = INPUTS, keys: int = KEYS) -> CommitHistory:
    """A run in which the bins of worker 0 go to worker 3 in its middle, correct unless a fault is named."""
    assert fault in {"", *FAULTS}, fault
    rng = random.Random(seed)
    inputs = [[rng.randrange(keys) for _ in range(RECORDS // partitions)] for _ in range(partitions)]
    run = _Run(rng, inputs, fault, partitions)
    owner = [b * WORKERS // BINS for b in range(BINS)]
    at, moved_at, moved = [0] * partitions, -1, [b for b in range(BINS) if owner[b] == 0]
    while any(here < len(keys_) for here, keys_ in zip(at, inputs, strict=True)):
        step = sum(at)
        if moved_at < 0 and step >= RECORDS * MOVED_AFTER:
            moved_at, owner = step, [3 if w == 0 else w for w in owner]
            if fault == "lost bin":
                run.counts = {key: n for key, n in run.counts.items() if bin_of(key) != moved[0]}
        taken: list[tuple[int, int, int]] = []
        for partition in rng.sample(range(partitions), partitions):
            many = min(rng.randint(0, 9), len(inputs[partition]) - at[partition])
            taken += [(partition, at[partition] + i, inputs[partition][at[partition] + i]) for i in range(many)]
            at[partition] += many
        _commits(run, owner, taken, late=0 <= moved_at <= step < moved_at + 40)
    return _history(run, inputs, moved, owner)


def _commits(run: _Run, owner: list[int], taken: list[tuple[int, int, int]], *, late: bool) -> None:
    for worker in range(WORKERS):
        mine = [record for record in taken if owner[bin_of(record[2])] == worker]
        if worker == 3 and late and mine:
            if run.fault == "doubled record":
                mine += mine[:1]
                late, run.fault = False, ""
            elif run.fault == "skipped record":
                mine, run.fault = mine[1:], ""
            elif run.fault == "commit sent under two numbers":
                before = dict(run.counts)
                run.commit(worker, mine)
                run.counts, run.fault = before, ""
        if mine:
            run.commit(worker, mine)


def _history(run: _Run, inputs: list[list[int]], moved: list[int], owner: list[int]) -> CommitHistory:
    rows = np.array([(p, at, key, at) for p, part in enumerate(inputs) for at, key in enumerate(part)], np.int64).T
    topic = [(p, at, *row) for p, part in enumerate(run.topic) for at, row in enumerate(part)]
    return CommitHistory(
        Records(rows[0].astype(np.int32), *rows[1:]),
        raw_results(topic),
        MovedBins.of([(RECORDS // len(inputs) // 2, b, "one") for b in moved]),
        NextOffsets.of([(b, p, after, owner[b]) for (b, p), after in sorted(run.done.items())]),
    )
