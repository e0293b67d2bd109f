"""Input of the simulated query, its operators, and the answer recomputed with none of the project's code."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from chaos.parameters import Parameters
from chaos.recipes import BAD, POISON, Broken, Chain, Recipes
from chaos.senders import COLUMNS, Senders
from impls.operators import DenseCount, HashCount, Operator
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.store.hashing import bin_of_hash, hash_int64

PARTITIONS = 2
Record = tuple[int, int, int | None, int]  # partition, offset, key, value


@dataclass(frozen=True)
class Batch:
    """The records of one epoch, in the order of the stream, and their bins."""

    epoch: int
    records: list[Record]
    bins: list[int]
    numbers: list[list[tuple[int, int]]] | None = None

    def tables(self, plan: EpochPlan, worker: int, random: Random, *, chained: bool) -> list[pa.Table]:
        """Returns a worker's records, those of its standbys too, as Spark hands them over: in any order, in one or two.

        A batch holds records of either kind, as an executor sends a record to its owner and to every standby.
        """
        on_standby = {bin_ for bin_, at in plan.copies.standbys if at == worker}
        mine = [i for i, bin_ in enumerate(self.bins) if plan.routing[bin_] == worker or bin_ in on_standby]
        random.shuffle(mine)
        cut = random.randint(0, len(mine))
        return [self._table(part, chained) for part in (mine[:cut], mine[cut:]) if part]

    def _table(self, rows: list[int], chained: bool) -> pa.Table:
        partition, offset, key, value = zip(*(self.records[i] for i in rows), strict=True)
        longs = pa.nulls(0) if chained else pa.array(key, pa.int64())
        columns = {
            "bin": pa.array([self.bins[i] for i in rows], pa.int32()),
            "partition": pa.array(partition, pa.int32()),
            "offset": pa.array(offset, pa.int64()),
            "time": pa.nulls(len(rows), pa.int64()),
            "key": pa.array([None if k is None else _name(k) for k in key], pa.binary()) if chained else longs,
        }
        if chained:
            columns["value"] = pa.array(value, pa.int64())
        if self.numbers is not None:
            found = zip(*(self.numbers[part][at] for part, at in zip(partition, offset, strict=True)), strict=True)
            columns |= {name: pa.array(column, pa.int64()) for name, column in zip(COLUMNS, found, strict=True)}
        return pa.table(columns)


def _name(key: int) -> bytes:
    return key.to_bytes(8, "big")


class Workload:
    """The stream, epoch by epoch from a seed, and the fold of it that the query must agree with.

    Attributes:
        operator: the keyed operator of the query.
        truth: by bin, the state of every key; `shape`: its shape.
        recipes: the versions of the pipeline.
        refused: workers that have refused a version in the last epoch; `turned`: (bin, shape) of it;
            `set_aside`: number of records that could not be applied in it.
        queues: by bin, records that arrived and wait for the state.
    """

    def __init__(self, parameters: Parameters):
        self._p, self._random = parameters, Random(parameters.seed + 1)
        self.chained = parameters.operator == "chain"
        self.operator: Operator = {
            "dense": DenseCount(parameters.keys),
            "hash": HashCount(),
            "preloaded": HashCount(parameters.keys),
            "chain": Chain(),
        }[parameters.operator]
        self.bin_of = self._bins()
        self._weights = [1 / (rank + 1) ** parameters.skew for rank in range(parameters.keys)]
        self._offsets = [0] * PARTITIONS
        self._senders = Senders[tuple[int | None, int]](parameters.seed, parameters.linked, PARTITIONS)
        self.truth: dict[int, dict[int, Any]] = defaultdict(dict)
        self.shape: dict[int, int] = defaultdict(int)
        self.recipes = Recipes()
        self.refused: set[int] = set()
        self.turned: set[tuple[int, int]] = set()
        self.set_aside = 0
        self.queues: dict[int, list[Record]] = defaultdict(list)
        self._history: dict[int, list[tuple[int, dict[int, Any]]]] = defaultdict(list)
        self._created = parameters.operator in {"dense", "preloaded"}
        if self._created:
            for key, bin_ in enumerate(self.bin_of):
                self.truth[bin_][key] = 0

    def _bins(self) -> list[int]:
        keys = np.arange(self._p.keys, dtype=np.int64)
        if isinstance(self.operator, DenseCount):
            return (keys // self.operator.per_bin(self._p.bins)).tolist()
        return bin_of_hash(hash_int64(keys), self._p.bins).tolist()

    def batch(self, epoch: int) -> Batch:
        """Returns the next epoch's records; a key's records are all in one partition."""
        random, records = self._random, []
        number = 0 if random.random() < self._p.idle else random.randint(1, self._p.records)
        for key in random.choices(range(self._p.keys), self._weights, k=number):
            partition = key % PARTITIONS
            value = random.randrange(BAD) + (BAD if self._p.bad and random.random() < self._p.bad else 0)
            records.append(self._at(partition, key, value))
            self._senders.sent(partition, (key, value))
            if self._p.refused and random.random() < self._p.refused:
                wrong, at = self._wrong(key), random.randrange(PARTITIONS)
                records.append(self._at(at, *wrong))
                self._senders.sent(at, wrong, again=wrong[1] == POISON)  # the operator fails on it: it has been run
            records += [self._at(partition, *again) for again in self._senders.again(partition)]
        known = dict(enumerate(self.bin_of))
        bins = [known.get(record[2], self._p.seed % self._p.bins) for record in records]
        return Batch(epoch, records, bins, self._senders.numbers if self._p.linked else None)

    def _at(self, partition: int, key: int | None, value: int) -> Record:
        self._offsets[partition] += 1
        return partition, self._offsets[partition] - 1, key, value

    def _wrong(self, key: int) -> tuple[int | None, int]:
        """Returns key and value of a record that cannot be applied."""
        wrong: list[tuple[int | None, int]] = [(None, 0)]
        if isinstance(self.operator, DenseCount):
            wrong.append((self._p.keys, 0))
        elif self.chained and not self._p.filters:
            wrong.append((key, POISON))
        return self._random.choice(wrong)

    def _is_refused(self, record: Record) -> bool:
        """Returns whether a record is left out before anything is queued."""
        return record[2] is None or record[2] >= self._p.keys

    def apply(self, batch: Batch, blocked: Iterable[int], written: WrittenPlan) -> dict[int, bytes]:
        """Takes in an epoch in which bins were blocked; returns the payload that each key's one result must have."""
        blocked = set(blocked)
        arrived: dict[int, list[Record]] = defaultdict(list)
        for bin_, queue in self.queues.items():
            arrived[bin_] += queue
        self.set_aside = sum(map(self._is_refused, batch.records))
        for record, bin_ in zip(batch.records, batch.bins, strict=True):
            if not self._is_refused(record):
                arrived[bin_].append(record)
        self.queues = defaultdict(list, {bin_: arrived.pop(bin_) for bin_ in blocked & set(arrived)})
        self.refused, self.turned = set(), set()
        results: dict[int, bytes] = {}
        for worker in range(written.workers):
            mine = {bin_: found for bin_, found in arrived.items() if written.plan.routing[bin_] == worker}
            new = {bin_: [one for one in found if one[:2] not in self._senders.repeats] for bin_, found in mine.items()}
            here = {bin_: sorted(found) for bin_, found in new.items() if found}
            results |= self._worked(worker, here, written)
        for bin_ in sorted({*arrived, *(bin_ for bin_, _ in self.turned)}):
            self._history[bin_].append((batch.epoch, dict(self.truth[bin_])))
        return results

    def _worked(self, worker: int, here: dict[int, list[Record]], written: WrittenPlan) -> dict[int, bytes]:
        """Takes in what a worker does; where the version that is guarded fails, its parent does it."""
        versions = written.versions
        if versions is None:
            return self._taken(here, dict.fromkeys(here, 0))
        required = versions.required.tolist()
        refits = [bin_ for bin_ in versions.refits if written.plan.routing[bin_] == worker]
        try:
            return self._taken(here, {bin_: required[bin_] for bin_ in [*here, *refits]})
        except Broken:
            self.refused.add(worker)
        going_back = [bin_ for bin_ in refits if required[bin_] != versions.guarded]
        left = {bin_: required[bin_] for bin_ in [*here, *going_back]}
        going = {
            bin_: self.recipes.without(at, self.shape[bin_]) if at == versions.guarded else at
            for bin_, at in left.items()
        }
        return self._taken(here, {bin_: self._reached(bin_, at) for bin_, at in going.items()})

    def _reached(self, bin_: int, number: int) -> int:
        """Returns a version that a bin goes back to, or that of its shape, where it stays if the way back fails."""
        try:
            self.recipes.turned(dict(self.truth[bin_]), self.shape[bin_], self.recipes.shape_of(number))
        except Broken:
            return self.shape[bin_]
        return number

    def _taken(self, here: dict[int, list[Record]], required: dict[int, int]) -> dict[int, bytes]:
        """Folds records of bins, each under its version; raises Broken, and has changed nothing, when one fails."""
        after, shapes, results, left_out = {}, {}, dict[int, bytes | None](), 0
        for bin_, number in required.items():
            shapes[bin_] = self.recipes.shape_of(number)
            after[bin_] = self.recipes.turned(dict(self.truth[bin_]), self.shape[bin_], shapes[bin_])
            for _, _, key, value in here.get(bin_, ()):
                if not self.recipes[number].keeps(key):
                    continue
                if value >= POISON:
                    left_out += 1
                else:
                    results[key] = self._fold(number, after[bin_], key, value)
        self.set_aside += left_out
        self.turned |= {(bin_, shape) for bin_, shape in shapes.items() if self.shape[bin_] != shape}
        self.truth.update(after)
        self.shape.update(shapes)
        return {key: payload for key, payload in results.items() if payload is not None}

    def truth_at(self, bin_: int, epoch: int) -> dict[int, Any]:
        """Returns the state of every key of a bin as it was at the end of an epoch."""
        before = [state for at, state in self._history[bin_] if at <= epoch]
        if before:
            return before[-1]
        return dict.fromkeys(self.truth[bin_], 0) if self._created else {}

    def _fold(self, number: int, state: dict[int, Any], key: int, value: int) -> bytes | None:
        after, payload = self.recipes[number].fold(state.pop(key, None), value, chained=self.chained)
        if after is not None:
            state[key] = after
        return payload
