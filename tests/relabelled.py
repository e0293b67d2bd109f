"""Right and wrong histories of a key-count whose pipeline changes, made from a seed without Spark or Kafka."""

import random
from dataclasses import dataclass, field, replace
from struct import pack
from typing import Any

import numpy as np

from harness.oracle.changes.check import Judged, check
from harness.oracle.changes.columns import ENTRY, HEADER, Listed, Plans, VersionEffect, leaves_out
from harness.oracle.columns import BinOf, MovedBins, Ranges, Records, Waits

KEYS, BINS, WORKERS, INPUTS, OUTPUTS = 24, 8, 2, 2, 3
EPOCHS, PER_EPOCH, SWITCH = 8, 40, 4
CODES = {
    "function": [VersionEffect(), VersionEffect(label=2)],
    "filter": [VersionEffect(), VersionEffect(sieve=True)],
    "shape": [VersionEffect(), VersionEffect(shape=2)],
    "there and back": [VersionEffect(), VersionEffect(shape=2), VersionEffect()],
}
bin_of = BinOf(BINS, lambda keys: keys // (KEYS // BINS) % BINS)


def objects(values):
    out = np.empty(len(values), object)
    out[:] = values
    return out


@dataclass
class History:
    """What a query leaves behind; `lists`: (partition, key, worker, epoch, index, header, entries), in topic order."""

    inputs: list[list[int]]
    lists: list[list[Any]]
    plans: Plans
    ranges: list[tuple[int, int, int, int]]
    waits: list[tuple[int, int]] = field(default_factory=list)

    def judged(self, *, real_time: bool = False) -> Judged:
        rows = [(p, at, key, 0) for p, part in enumerate(self.inputs) for at, key in enumerate(part)]
        columns = np.array(rows, np.int64).T
        epoch, part, begin, end = np.array(self.ranges, np.int64).T
        more = {"ranges": Ranges(epoch, part.astype(np.int32), begin, end), "waits": Waits.of(self.waits)}
        return check(
            Records(columns[0].astype(np.int32), *columns[1:]), self._results(), self.plans, bin_of=bin_of,
            partitions=OUTPUTS, moves=MovedBins.of([(SWITCH, 0, "one")]), **({} if real_time else more),
        )  # fmt: skip

    def _results(self) -> Listed:
        ordered = sorted(self.lists, key=lambda line: line[0])
        numbers = np.array([line[:5] for line in ordered], np.int64).T
        values = [pack(HEADER, *line[5]) + np.array(line[6], ENTRY).tobytes() for line in ordered]
        part, key, worker, epoch, index = numbers
        offset = np.concatenate([np.arange(np.sum(part == p)) for p in range(OUTPUTS)])
        zeros = np.zeros(len(ordered), np.int64)
        places = part.astype(np.int32), offset, worker.astype(np.int32)
        return Listed(*places, zeros, epoch, index, zeros, key, objects(values))

    def with_codes(self, codes: list[VersionEffect]) -> "History":
        return replace(self, plans=replace(self.plans, codes=codes))


def make(seed: int, change: str = "function", *, late_bins: int = 3) -> History:
    """A query that is right: its bins go over to the next version in epoch 4, some of them in epoch 5."""
    rng = random.Random(seed)
    codes = CODES[change]
    inputs: list[list[int]] = [[] for _ in range(INPUTS)]
    required, ranges, lists = {}, [], []
    totals, since = dict.fromkeys(range(KEYS), 0), dict.fromkeys(range(KEYS), (0, 0))
    for epoch in range(EPOCHS):
        last = len(codes) - 1
        required[epoch] = np.array(
            [min(last, max(0, epoch - SWITCH + 1 - (b < late_bins))) for b in range(BINS)], np.int64
        )
        listed: dict[int, list[tuple[int, int, int]]] = {}
        begins = [len(part) for part in inputs]
        for _ in range(PER_EPOCH):
            key, part = rng.randrange(KEYS), rng.randrange(INPUTS)
            inputs[part].append(key)
            code, offset = codes[required[epoch][bin_of(key)]], len(inputs[part]) - 1
            if not leaves_out(code, offset):
                listed.setdefault(key, []).append((part, offset, code.label))
        ranges += [(epoch, p, begin, len(inputs[p])) for p, begin in enumerate(begins) if begin < len(inputs[p])]
        index = [0] * WORKERS
        for key, entries in sorted(listed.items()):
            bin_ = int(bin_of(key))
            code, version = codes[required[epoch][bin_]], int(required[epoch][bin_])
            totals[key] += len(entries)
            if code.shape == 2:
                known, number = since[key]
                since[key] = (version, (number if known == version else 0) + len(entries))
            header = (code.shape, totals[key], since[key][1] if code.shape == 2 else 0)
            worker = bin_ % WORKERS
            lists.append([bin_ * OUTPUTS // BINS, key, worker, epoch, index[worker], header, sorted(entries)])
            index[worker] += 1
    ids = [f"change {n}" for n in range(1, len(codes))]
    return History(inputs, lists, Plans(codes, required, ids), ranges)
