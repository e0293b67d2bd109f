"""One Structured Streaming query whose epochs go to the real driver and to the twin in turns, block by block.

What a worker of this runtime does whether or not its state can move, the twin does too: one writer by a lock, exactly
once by what is stored with the state, a report with phases and sizes.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from generators.clock import now_us
from impls.catalog import make
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord
from impls.errors import StateError
from impls.operators.base import Input, Operator
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.report import Report
from impls.spark.columns import prepared
from impls.spark.executor import MicroBatchExecutor
from impls.spark.step import REPORT_SCHEMA, answer_of, freeze_imports
from impls.store.checked import get_of_epoch, put_of_epoch
from impls.store.environment import Meta, Store, read_meta, store_path, write_meta
from impls.store.lock import take_lock
from impls.store.records import Results, concat
from impls.store.state import BinState
from impls.store.tables import OUTBOX
from impls.worker.cells import CELL, make_cells
from impls.worker.output import Output
from impls.worker.parts import Phase
from impls.worker.query import QuerySpec

_NAMES = (b"results", b"times")


@dataclass(frozen=True)
class TwinOrder:
    """What an epoch asks of every worker; the operator sees one bin per worker, which is what routing goes by."""

    query: str
    epoch: int
    workers: int
    operator: Operator
    output: Output
    state_dir: str


def twin_epoch(order: TwinOrder, report: Report, tables: list[pa.Table]) -> tuple[Results, NDArray[np.int64]]:
    """Commits an epoch, or finds it committed, and returns its results and the column `time` of its records.

    Raises StateError when the state is not that of the epoch before, or when another process does not end its epoch.
    """
    path = store_path(order.state_dir, report.worker)
    lock = take_lock(path)
    if lock is None:
        raise StateError(f"The state in {path} is held by another process that does not end.")
    with closing(lock), Store.open(path) as store:
        txn = store.begin()
        try:
            with Phase(report.ms, "apply"):
                done = _advance(order, report, txn, tables)
            with Phase(report.ms, "commit"):
                txn.commit()
        except BaseException:
            txn.abort()
            raise
        report.lmdb_bytes = store.used_bytes()
    return done


def _advance(
    order: TwinOrder, report: Report, txn: lmdb.Transaction, tables: list[pa.Table]
) -> tuple[Results, NDArray[np.int64]]:
    meta = read_meta(txn) or _created(order, report.worker, txn)
    if meta.epoch == order.epoch:  # by an earlier attempt
        results, times = (get_of_epoch(txn, OUTBOX + name, order.epoch) or b"" for name in _NAMES)
        return Results.unpacked(results), np.frombuffer(times, "<i8")
    if meta.epoch != order.epoch - 1:
        raise StateError(f"Worker {report.worker} is at epoch {meta.epoch}, not before {order.epoch}.")
    done = _apply(order, report, txn, tables)
    write_meta(txn, meta.at_epoch(order.epoch, 1))
    return done


def _created(order: TwinOrder, worker: int, txn: lmdb.Transaction) -> Meta:
    state = BinState(txn, order.workers)
    order.operator.create(worker, order.workers, state)
    state.write_sizes()
    return Meta.new(order.query, worker, order.epoch - 1, 1)


def _apply(
    order: TwinOrder, report: Report, txn: lmdb.Transaction, tables: list[pa.Table]
) -> tuple[Results, NDArray[np.int64]]:
    table = concat(tables) if tables else None
    results, times = Results.none(), np.empty(0, np.int64)
    if table is not None and len(table):
        state = BinState(txn, order.workers)
        results = order.operator.run(state, [Input(np.ones(order.workers, bool), None, table)]).results
        state.write_sizes()
        times = table.column("time").to_numpy()
    for name, value in zip(_NAMES, (results.packed(), times.astype("<i8").tobytes()), strict=True):
        put_of_epoch(txn, OUTBOX + name, order.epoch, value)
        report.outbox_bytes += len(value)
    return results, times


def run_twin(order: TwinOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one epoch of the worker whose number is the partition's, as `impls.spark.step.run_step` does."""
    context = TaskContext.get()
    assert context is not None, "run_twin runs inside a Spark task"
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    report = Report(context.partitionId(), context.attemptNumber(), pid=os.getpid())
    results, times = twin_epoch(order, report, tables)
    report.records, report.results = len(times), len(results.keys)
    with Phase(report.ms, "send"):
        order.output.send(
            results, bins=order.workers, worker=report.worker, generation=1, epoch=order.epoch, first=0, commit=0
        )
    report.done_us = time.time_ns() // 1000
    freeze_imports()
    cells, report.negative = make_cells(times, report.done_us, np.zeros(len(times), bool))
    yield answer_of(report, cells)


BLOCK_EPOCHS = 3  # the fewest of a block: its first one is left out
_SIDES = ("live", "twin")


@dataclass(frozen=True)
class TurnEpoch:
    """A finished epoch: its side and block (None before the load), records, and their latency cells."""

    side: str
    block: int | None
    records: int
    cells: NDArray[np.void]


def side_of(block: int) -> str:
    """Returns the side of a block; each pair of blocks has the order of the last reversed.

    >>> [side_of(block) for block in range(6)]
    ['live', 'twin', 'twin', 'live', 'live', 'twin']
    """
    return _SIDES[(block + block // 2) % 2]


class TimedBlocks:
    """Blocks of `block_s` seconds; where epochs are long a block lasts until it has `BLOCK_EPOCHS` of them.

    >>> blocks = TimedBlocks(2.0)
    >>> [blocks.at(since_s) for since_s in (0.0, 0.5, 1.0, 1.9, 2.1, 4.2, 6.3, 6.8, 8.1)]
    [0, 0, 0, 0, 1, 1, 1, 2, 2]
    """

    def __init__(self, block_s: float):
        self._block_s, self._block, self._epochs, self._ends_s = block_s, 0, 0, block_s

    def at(self, since_s: float) -> int:
        """Returns the block of an epoch that begins so many seconds after the load did; called once per epoch."""
        if since_s >= self._ends_s and self._epochs >= BLOCK_EPOCHS:
            self._block, self._epochs = self._block + 1, 0
            self._ends_s = (since_s // self._block_s + 1) * self._block_s
        self._epochs += 1
        return self._block


class Alternating:
    """`foreachBatch` of the query: each side counts its own epochs and has its own state.

    Attributes:
        timed: the blocks of a load that begins at `start_us`; before it the sides take turns epoch by epoch.
        counted: whether blocks of `BLOCK_EPOCHS` epochs follow each other instead, from the next query's epoch 0 on.
    """

    def __init__(
        self,
        operator: Operator,
        output: Output,
        folder: Path,
        *,
        workers: int,
        bins: int,
        on_epoch: Callable[[TurnEpoch], None],
    ):
        self._operator, self._output, self._folder, self._workers, self._bins = operator, output, folder, workers, bins
        self._on_epoch = on_epoch
        self._checkpoint = Checkpoint(folder / "checkpoint", {"bins": bins}, fsync=False)
        spec = QuerySpec(self._checkpoint.query, bins, operator, output, str(folder / "live"))
        controller = Controller(initial(bins, workers), make("none"), None)
        self._driver = Driver(controller, self._checkpoint, MicroBatchExecutor(spec), files=None, on_epoch=self._seen)
        self._epochs = dict.fromkeys(_SIDES, 0)
        self._last: EpochRecord | None = None
        self.start_us, self.timed, self.counted = 0, TimedBlocks(1.0), False

    @property
    def ready(self) -> bool:
        """Whether both sides have run epochs enough to have their state and warm workers."""
        return min(self._epochs.values()) >= 3

    def close(self) -> None:
        """Frees the checkpoint."""
        self._checkpoint.close()

    def run_epoch(self, batch: DataFrame, epoch: int) -> None:
        """Runs an epoch on the side whose turn it is."""
        block, side = self._turn(epoch)
        records, cells = (self._live if side == "live" else self._twin)(batch, self._epochs[side])
        self._epochs[side] += 1
        self._on_epoch(TurnEpoch(side, block, records, cells))

    def _turn(self, epoch: int) -> tuple[int | None, str]:
        since_us = now_us() - self.start_us
        if not self.counted and (not self.start_us or since_us < 0):
            return None, _SIDES[epoch % 2]
        block = epoch // BLOCK_EPOCHS if self.counted else self.timed.at(since_us / 1e6)
        return block, side_of(block)

    def _binned(self, batch: DataFrame, bins: int) -> DataFrame:
        return prepared(batch, "key", self._operator, bins, "scheduled_us")

    def _seen(self, record: EpochRecord) -> None:
        self._last = record

    def _live(self, batch: DataFrame, epoch: int) -> tuple[int, NDArray[np.void]]:
        self._driver.run_epoch(self._binned(batch, self._bins), epoch)
        assert self._last is not None, "the driver tells of each epoch"
        return sum(r.records for r in self._last.reports), np.concatenate(list(self._last.cells.values()))

    def _twin(self, batch: DataFrame, epoch: int) -> tuple[int, NDArray[np.void]]:
        where = str(self._folder / "twin")
        order = TwinOrder("twin", epoch, self._workers, self._operator, self._output, where)
        routed = self._binned(batch, self._workers).repartitionById(self._workers, F.col("bin"))
        rows = routed.mapInArrow(partial(run_twin, order), REPORT_SCHEMA).collect()
        reports = [Report.from_json(row["report"]) for row in rows]
        return sum(r.records for r in reports), np.concatenate([np.frombuffer(r["cells"], CELL) for r in rows])
