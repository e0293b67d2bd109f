"""Real worker cores with changelog and snapshots, without Spark and Kafka: epochs of key-count, faults between them."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from memory import MemoryOutput

from impls.driver.keeper import Keeper
from impls.durability.files import Files
from impls.operators import HashCount, Operator
from impls.protocol.ended import EndedEpoch
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.replicas import Copies
from impls.protocol.report import Report
from impls.store.environment import store_path
from impls.store.hashing import bin_of_hash, hash_int64
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task

BINS = 16


@dataclass
class Workers:
    """`epoch` runs the next epoch; pulls change the location as a controller would observe it."""

    folder: Path
    operator: Operator = field(default_factory=HashCount)
    keys: int = 2000
    workers: int = 3
    replay_epochs: int = 20
    seed: int = 1
    durable: bool = True
    number: int = -1
    generation: int = 1
    uri: str | None = None
    fsync: bool = False
    shared: Any = None

    def __post_init__(self) -> None:
        self.location = (np.arange(BINS) * self.workers // BINS).astype(np.int32)
        self.files = Files(self.uri or str(self.folder / "checkpoint"), fsync=self.fsync) if self.durable else None
        self.sizes = np.zeros(BINS, np.int64)
        self.keeper = self.open_keeper()
        self.output: Any = MemoryOutput(str(self.folder))
        self.truth: Counter[int] = Counter()
        self.drops: tuple[tuple[int, int], ...] = ()
        self.known: set[int] = set()
        self._random = np.random.default_rng(self.seed)

    def open_keeper(self) -> Keeper | None:
        """The driver's side, as it is after a restart."""
        if self.files is None:
            return None
        return Keeper(
            self.files, "q", ended=EndedEpoch(self.number, self.location), generation=self.generation,
            sizes=self.sizes, replay_epochs=self.replay_epochs,
        )  # fmt: skip

    def environment(self, worker: int) -> Path:
        return store_path(self.folder / "state", worker)

    def lose(self, worker: int) -> None:
        """Deletes a worker's environment."""
        shutil.rmtree(self.environment(worker))

    def bins_of(self, keys: np.ndarray) -> np.ndarray:
        if isinstance(self.operator, HashCount):
            return bin_of_hash(hash_int64(keys), BINS)
        return keys // self.operator.per_bin(BINS)

    def order(self, pulls: Sequence[Pull] = (), **more: Any) -> EpochOrder:
        """The order of the epoch; (bin, worker) in `refresh` are replicas to bring up, in `forgotten` to delete."""
        routing = self.location.copy()
        for pull in pulls:
            routing[pull.bin] = pull.target
        named = {name: more.pop(name) for name in ("from_checkpoint", "on_demand", "from_replica") if name in more}
        plan = EpochPlan(routing, tuple(pulls), copies=Copies(tuple(more.pop("refresh", ()))), **named)
        workers = 1 + int(max(routing.max(), self.location.max()))
        forgotten = tuple(more.pop("forgotten", ()))
        written = WrittenPlan(self.number, 1, workers, plan, self.drops, forgotten=forgotten)
        fresh = tuple(set(range(workers)) - set(self.location.tolist()) - {w for _, w in self.drops})
        return EpochOrder(
            written, self.generation, first=self.number == 0, fresh=fresh,
            elsewhere=tuple((p.bin, p.source) for p in pulls),
            snapshot=self.keeper.to_snapshot(self.number) if self.keeper else (), **more,
        )  # fmt: skip

    @property
    def spec(self) -> QuerySpec:
        return QuerySpec("q", BINS, self.operator, self.output, str(self.folder / "state"), self.files, self.shared)

    def epoch(self, pulls: Sequence[Pull] = (), records: int = 200, **more: Any) -> list[Report]:
        """Runs the next epoch on every worker and returns the reports."""
        self.number += 1
        keys = self._random.integers(0, self.keys, records)
        self.truth.update(keys.tolist())
        order = self.order(pulls, **more)
        owner = order.written.plan.routing[self.bins_of(keys)]
        reports = [self.run(order, w, keys, owner) for w in range(order.written.workers)]
        self.drops = tuple((p.bin, p.source) for p in pulls)
        self.location = order.written.plan.routing.copy()
        for report in reports:
            for bin_, size in zip(*report.sizes, strict=True):
                self.sizes[bin_] = size
        if self.keeper is not None:
            self.keeper.observe(EndedEpoch(self.number, self.location), reports, self.location, self.sizes)
        return reports

    def epochs(self, number: int) -> None:
        """Runs epochs that move nothing."""
        for _ in range(number):
            self.epoch()

    def run(self, order: EpochOrder, worker: int, keys: np.ndarray, owner: np.ndarray, attempt: int = 0) -> Report:
        mine = np.flatnonzero(owner == worker)
        columns = {
            "bin": pa.array(self.bins_of(keys[mine]), pa.int32()),
            "partition": pa.array(np.zeros(len(mine)), pa.int32()),
            "offset": pa.array(mine + self.number * 1_000_000, pa.int64()),
            "time": pa.array(np.zeros(len(mine)), pa.int64()),
            "key": pa.array(keys[mine], pa.int64()),
        }
        return run_epoch(self.task(order, worker, attempt), [pa.table(columns)])[0]

    def task(self, order: EpochOrder, worker: int, attempt: int = 0) -> Task:
        return Task(self.spec, order, worker, attempt)

    def check(self) -> None:
        """The last result of every key is the number of its records, and no key's count ever repeats or falls."""
        counts: dict[int, int] = {}
        for _, key, count in self.output.read():
            name = int.from_bytes(key, "big")
            assert count > counts.get(name, 0), f"key {name}: {count} after {counts.get(name)}"
            counts[name] = count
        assert counts == dict(self.truth)
