"""A query on the real driver and worker core, with loops in place of Spark and lists in place of Kafka."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from histories import raw_results
from inprocess import InProcessExecutor

from generators.keys import make_keys
from harness.oracle.columns import Ranges, Records
from harness.suites.conformance.bounds import completes
from harness.suites.conformance.cases import BINS, Tour, options_for
from harness.suites.conformance.judge import NUMBER_OF_KEYS, Row, bins_of, rows_of
from harness.suites.conformance.watch import Watch
from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import StopNeeded
from impls.durability.files import Files
from impls.operators import DenseCount, HashCount
from impls.placement import goal as place
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.worker.query import QuerySpec

INPUT_PARTITIONS, RESULT_PARTITIONS = 2, 4
RECORDS_PER_EPOCH = 15
EPOCHS_MOST = 400


@dataclass
class Topic:
    """Takes results as a topic does."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0] * RESULT_PARTITIONS)

    def send(self, results, *, bins: int, worker: int, generation: int, epoch: int, **_: int) -> None:
        rows = zip(results.bins.tolist(), results.keys, results.payloads, strict=True)
        for index, (bin_, key, count) in enumerate(rows):
            partition = bin_ * RESULT_PARTITIONS // bins
            numbers = int.from_bytes(key, "big"), int.from_bytes(count, "little")
            self.rows.append((partition, self.ends[partition], *numbers, worker, generation, epoch, index, 0))
            self.ends[partition] += 1


class SimulatedQuery:
    """Runs epochs whenever it is to wait for something."""

    def __init__(self, tour: Tour, folder: Path, redis: str = ""):
        self._tour, self._folder, self._options = tour, folder, options_for(tour.mechanism, redis)
        self._shared = catalog.make(tour.mechanism, **self._options).shared
        self._operator = DenseCount(NUMBER_OF_KEYS) if tour.operator == "dense" else HashCount(NUMBER_OF_KEYS // 2)
        self._topic, self._sampler = Topic(), make_keys(tour.keys, NUMBER_OF_KEYS, 1.0, 7)
        self._pending: deque[int] = deque()
        self._ends, self.sent, self.epoch = [0] * INPUT_PARTITIONS, 0, 0
        self._records: list[tuple[int, int, int]] = []
        self._ranges: list[tuple[int, int, int, int]] = []
        (folder / "state").mkdir(parents=True)
        self.watch = Watch(tour.mechanism, self._options, initial(BINS, tour.workers))
        self._start()

    def _start(self) -> None:
        self._checkpoint = Checkpoint(self._folder / "checkpoint", {"bins": BINS})
        mechanism = catalog.make(self._tour.mechanism, **self._options)
        files = None if self._shared else Files(str(self._checkpoint.own))
        controller = Controller(initial(BINS, self._tour.workers), mechanism)
        query, state = self._checkpoint.query, str(self._folder / "state")
        spec = QuerySpec(query, BINS, self._operator, self._topic, state, files, self._shared)
        executor = InProcessExecutor(spec)
        self._driver = Driver(controller, self._checkpoint, executor, files=files, on_epoch=self.watch.on_epoch)

    @property
    def goal(self):
        return self._driver.controller.commanded.copy()

    def rebalance(self, goal, label: str) -> None:
        self._driver.command("rebalance", goal, label)

    def rescale(self, workers: int) -> None:
        self._driver.command("rescale", place("minimal_move", self.goal, workers), "rescale")

    def load(self, records: int) -> None:
        self._pending += self._sampler.block(self.sent, records).tolist()
        self.sent += records

    def await_true(self, wanted, what: str) -> None:
        end = self.epoch + EPOCHS_MOST
        while not wanted():
            if self.epoch >= end:
                raise TimeoutError(f"waited {EPOCHS_MOST} epochs for {what}")
            self._one_epoch()

    def _one_epoch(self) -> None:
        batch = self._batch()
        try:
            self._driver.run_epoch(batch, self.epoch)
        except StopNeeded as stop:
            self._driver.stopped(stop.epoch)
            self.close()
            self._start()
            self._driver.run_epoch(batch, self.epoch)
        self.epoch += 1

    def _batch(self) -> pa.Table:
        """Records trickle while a migration is under way, so that all of it sees some, and come at once otherwise."""
        trickle = self._driver.controller.migrating and completes(self._tour.mechanism)
        most = RECORDS_PER_EPOCH if trickle else len(self._pending)
        keys = np.array([self._pending.popleft() for _ in range(min(most, len(self._pending)))], np.int64)
        partition = (np.arange(len(keys)) % INPUT_PARTITIONS).astype(np.int32)
        begin, offset = list(self._ends), np.empty(len(keys), np.int64)
        for p in range(INPUT_PARTITIONS):
            mine = np.flatnonzero(partition == p)
            offset[mine] = self._ends[p] + np.arange(len(mine))
            self._ends[p] += len(mine)
            if len(mine):
                self._ranges.append((self.epoch, p, begin[p], self._ends[p]))
        self._records += zip(partition.tolist(), offset.tolist(), keys.tolist(), strict=True)
        columns = {"bin": bins_of(self._tour.operator)(keys).astype(np.int32), "partition": partition, "offset": offset}
        return pa.table({**columns, "time": pa.nulls(len(keys), pa.int64()), "key": keys})

    def rows(self) -> list[Row]:
        """What the tour's cases came to."""
        partition, offset, key = (np.array(column, np.int64) for column in zip(*self._records, strict=True))
        order = np.lexsort((offset, partition))
        records = Records(partition, offset, key, np.zeros_like(key)).take(order)
        results = raw_results(sorted(self._topic.rows))
        ranges = Ranges(*np.array(self._ranges, np.int64).reshape(-1, 4).T)
        return rows_of(
            self._tour, self.watch, records, results, ranges, partitions=RESULT_PARTITIONS, sent=self.sent
        )  # fmt: skip

    def close(self) -> None:
        self._checkpoint.close()
