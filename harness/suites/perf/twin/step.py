"""The twin's step: hash routing that never changes, no bins, no plan; open, apply, commit, send.

What a worker of this runtime does whether or not its state can move, the twin does too: one writer by a lock, exactly
once by what is stored with the state, a report with phases and sizes.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from impls.errors import StateError
from impls.operators.base import Operator
from impls.protocol.report import Report
from impls.spark.step import answer_of, freeze_imports
from impls.store.checked import get_of_epoch, put_of_epoch
from impls.store.environment import Store, store_path
from impls.store.lock import take_lock
from impls.store.meta import Meta, read_meta, write_meta
from impls.store.records import Results, concat, from_bytes, times_of, to_bytes
from impls.store.state import BinState
from impls.store.tables import OUTBOX
from impls.worker.cells import make_cells
from impls.worker.output import Output
from impls.worker.parts import Phase

__all__ = ["TwinOrder", "run_twin", "twin_epoch"]

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


def twin_epoch(order: TwinOrder, report: Report, tables: list[pa.Table]) -> tuple[Results, pa.Table]:
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
) -> tuple[Results, pa.Table]:
    meta = read_meta(txn) or _created(order, report.worker, txn)
    if meta.epoch == order.epoch:  # by an earlier attempt
        results, times = (get_of_epoch(txn, OUTBOX + name, order.epoch) or b"" for name in _NAMES)
        return Results.from_bytes(results), from_bytes(times)
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


def _apply(order: TwinOrder, report: Report, txn: lmdb.Transaction, tables: list[pa.Table]) -> tuple[Results, pa.Table]:
    table = concat(tables) if tables else None
    results, times = Results.none(), times_of(None)
    if table is not None and len(table):
        state = BinState(txn, order.workers)
        results = order.operator.apply(table, state)
        state.write_sizes()
        times = times_of(table)
    for name, value in zip(_NAMES, (results.to_bytes(), to_bytes(times)), strict=True):
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
        order.output.send(results, bins=order.workers, worker=report.worker, generation=1, epoch=order.epoch)
    report.done_us = time.time_ns() // 1000
    freeze_imports()
    cells, report.negative = make_cells(times.column("time").to_numpy(), report.done_us, np.zeros(len(times), bool))
    yield answer_of(report, cells)
