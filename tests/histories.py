"""Correct and broken histories of a key-count run, made from a seed without Spark or Kafka."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.oracle.columns import BinOf, MovedBins, Ranges, RawResults, Records, Waits
from harness.oracle.keycount import check
from harness.oracle.verdict import Differences, Facts, judge

KEYS, BINS, WORKERS, INPUTS, OUTPUTS = 48, 8, 4, 2, 3
EPOCHS, PER_EPOCH, MOVED_AT = 12, 40, 5
FAULTS = ("lost bin", "doubled record", "stale read", "late drop")


bin_of = BinOf(BINS, lambda keys: keys // (KEYS // BINS) % BINS)


@dataclass(frozen=True)
class History:
    """What a run leaves behind for the oracle."""

    records: Records
    results: RawResults
    ranges: Ranges
    moves: MovedBins
    facts: Facts
    waits: Waits = field(default_factory=lambda: Waits.of([]))

    def found(self) -> Differences:
        return check(
            self.records, self.results, self.ranges,
            bin_of=bin_of, partitions=OUTPUTS, moves=self.moves, waits=self.waits,
        )  # fmt: skip

    def judged(self) -> dict[str, Any]:
        return judge(self.found(), self.facts)

    def with_results(self, **columns: Any) -> "History":
        return replace(self, results=replace(self.results, **columns))

    def take_results(self, rows: Any) -> "History":
        """The same history with these rows as its results topic, offsets numbered anew."""
        taken = self.results.take(np.asarray(rows))
        order = np.argsort(taken.partition, kind="stable")
        taken = taken.take(order)
        offsets = np.concatenate([np.arange(np.sum(taken.partition == p)) for p in range(OUTPUTS)])
        return replace(self, results=replace(taken, offset=offsets))


@dataclass
class Pipeline:
    """A key-count pipeline in plain Python: a state per (worker, bin), results numbered and appended to partitions."""

    rng: random.Random
    fault: str | None
    retries: bool
    state: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    before: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    topic: list[list[tuple[int, ...]]] = field(default_factory=lambda: [[] for _ in range(OUTPUTS)])
    queue: list[int] = field(default_factory=list)

    def move(self, bins: list[int], routing: list[int], target: list[int]) -> None:
        for b in bins:
            source = self.before if self.fault == "stale read" else self.state
            taken = dict(source.get((routing[b], b), {}))
            self.state[target[b], b] = {} if self.fault == "lost bin" and b == bins[0] else taken

    def epoch(self, epoch: int, keys: list[int], owners: list[list[int]]) -> None:
        """Applies an epoch's records; `owners` are the workers that answer for each bin, none for a bin that waits."""
        keys = self.queue + keys
        self.queue = [key for key in keys if not owners[bin_of(key)]]
        self.before = {place: dict(counts) for place, counts in self.state.items()}
        for worker in self.rng.sample(range(WORKERS), WORKERS):
            touched: dict[int, int] = {}
            for key in (key for key in keys if worker in owners[bin_of(key)]):
                counts = self.state.setdefault((worker, bin_of(key)), {})
                counts[key] = touched[key] = counts.get(key, 0) + 1
            self.send(worker, epoch, touched)

    def send(self, worker: int, epoch: int, results: dict[int, int]) -> None:
        rows = [(key, count, worker, 1, epoch, index, 0) for index, (key, count) in enumerate(sorted(results.items()))]
        if self.retries and self.rng.random() < 0.3:
            rows = rows[: self.rng.randint(0, len(rows))] + rows
        for row in rows:
            self.topic[bin_of(row[0]) * OUTPUTS // BINS].append(row)

    def results(self) -> RawResults:
        rows = [(p, at, *row) for p, part in enumerate(self.topic) for at, row in enumerate(part)]
        return raw_results(rows)


def raw_results(rows: list[tuple[int, ...]]) -> RawResults:
    """Results from rows of partition, offset, key, count, worker, generation, epoch, index and commit."""
    partition, offset, key, count, worker, *number = np.array(rows, np.int64).reshape(-1, 9).T
    return RawResults(partition.astype(np.int32), offset, worker.astype(np.int32), *number, key, count)


def make(seed: int, *, fault: str | None = None, retries: bool = True, migrate: bool = True, held: int = 0) -> History:
    """A run over random keys in which two bins of worker 0 go to worker 3, correct unless a fault is named.

    The moving bins wait for the first `held` epochs of the migration.
    """
    rng = random.Random(seed)
    assert fault is None or fault in FAULTS, fault
    routing = [b * WORKERS // BINS for b in range(BINS)]
    target = [3 if owner == 0 else owner for owner in routing]
    moved = [b for b in range(BINS) if routing[b] != target[b]]
    pipeline, inputs, ranges = Pipeline(rng, fault, retries), [[] for _ in range(INPUTS)], []
    for epoch in range(EPOCHS):
        keys = [rng.randrange(KEYS) for _ in range(rng.randint(0, PER_EPOCH) if epoch % 4 == 3 else PER_EPOCH)]
        # the first keys of every epoch lie in the moved bins, so that every fault has something to break
        keys[:4] = [0, 1, KEYS // BINS, KEYS // BINS + 1]
        if epoch == MOVED_AT and migrate:
            pipeline.move(moved, routing, target)
        owner = target if epoch >= MOVED_AT and migrate else routing
        late = fault == "late drop" and epoch == MOVED_AT
        owners = [sorted({owner[b], routing[b]}) if late else [owner[b]] for b in range(BINS)]
        if MOVED_AT <= epoch < MOVED_AT + held:
            owners = [[] if b in moved else workers for b, workers in enumerate(owners)]
        begins = [len(part) for part in inputs]
        for key in keys:
            inputs[rng.randrange(INPUTS)].append(key)
        applied = keys + keys[:1] if fault == "doubled record" and epoch == MOVED_AT else keys
        pipeline.epoch(epoch, applied, owners)
        ranges += [(epoch, p, begin, len(inputs[p])) for p, begin in enumerate(begins) if begin < len(inputs[p])]
    history = _history(inputs, pipeline.results(), ranges, moved if migrate else [])
    return replace(history, waits=Waits.of((MOVED_AT + i, b) for i in range(held) for b in moved))


def _history(inputs: list[list[int]], results: RawResults, ranges: list[tuple[int, ...]], moved: list[int]) -> History:
    rows = np.array([(p, at, key, 0) for p, part in enumerate(inputs) for at, key in enumerate(part)], np.int64).T
    epoch, partition, begin, end = np.array(ranges, np.int64).T
    ids = frozenset({"one"} if moved else ())
    return History(
        records=Records(rows[0].astype(np.int32), *rows[1:]),
        results=results,
        ranges=Ranges(epoch, partition.astype(np.int32), begin, end),
        moves=MovedBins.of([(MOVED_AT, b, "one") for b in moved]),
        facts=Facts(produced=rows.shape[1], commanded=ids, completed=ids),
    )
