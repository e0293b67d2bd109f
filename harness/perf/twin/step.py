"""The twin's step: hash routing that never changes, no bins, no plan; open, apply, commit, send."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from impls.errors import StateError
from impls.operators.base import Operator
from impls.runtime import outbox
from impls.runtime.cells import make_cells
from impls.runtime.jsontext import to_text
from impls.runtime.outbox import Output
from impls.runtime.records import Results, concat, from_bytes, times_of, to_bytes
from impls.runtime.state import BinState
from impls.runtime.step import spare_the_collector
from impls.runtime.store import (
    OUTBOX,
    Meta,
    Store,
    at_epoch,
    get_of_epoch,
    new_meta,
    put_of_epoch,
    read_meta,
    store_path,
    write_meta,
)

__all__ = ["TwinOrder", "run_twin", "twin_epoch"]

_NAMES = (b"results", b"times")


@dataclass(frozen=True, slots=True)
class TwinOrder:
    """What an epoch asks of every worker; the operator sees one bin per worker, which is what routing goes by."""

    query: str
    epoch: int
    workers: int
    operator: Operator
    output: Output
    state_dir: str


def twin_epoch(order: TwinOrder, worker: int, tables: list[pa.Table]) -> tuple[Results, pa.Table]:
    """Commits an epoch, or finds it committed, and returns its results and the column `time` of its records.

    Raises StateError when the state is not that of the epoch before.
    """
    with Store.open(store_path(order.state_dir, worker)) as store:
        txn = store.begin()
        try:
            done = _advance(order, worker, txn, tables)
            txn.commit()
        except BaseException:
            txn.abort()
            raise
    return done


def _advance(order: TwinOrder, worker: int, txn: lmdb.Transaction, tables: list[pa.Table]) -> tuple[Results, pa.Table]:
    meta = read_meta(txn) or _created(order, worker, txn)
    if meta.epoch == order.epoch:  # by an earlier attempt
        results, times = (get_of_epoch(txn, OUTBOX + name, order.epoch) or b"" for name in _NAMES)
        return outbox.unpack(results), from_bytes(times)
    if meta.epoch != order.epoch - 1:
        raise StateError(f"Worker {worker} is at epoch {meta.epoch}, not before {order.epoch}.")
    done = _apply(order, txn, tables)
    write_meta(txn, at_epoch(meta, order.epoch, 1))
    return done


def _created(order: TwinOrder, worker: int, txn: lmdb.Transaction) -> Meta:
    state = BinState(txn, order.workers)
    order.operator.create(worker, order.workers, state)
    state.write_sizes()
    return new_meta(order.query, worker, order.epoch - 1, 1)


def _apply(order: TwinOrder, txn: lmdb.Transaction, tables: list[pa.Table]) -> tuple[Results, pa.Table]:
    table = concat(tables) if tables else None
    results, times = Results.none(), times_of(None)
    if table is not None and len(table):
        state = BinState(txn, order.workers)
        results = order.operator.apply(table, state)
        state.write_sizes()
        times = times_of(table)
    for name, value in zip(_NAMES, (outbox.pack(results), to_bytes(times)), strict=True):
        put_of_epoch(txn, OUTBOX + name, order.epoch, value)
    return results, times


def run_twin(order: TwinOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one epoch of the worker whose number is the partition's, as `impls.runtime.step.run_step` does."""
    context = TaskContext.get()
    assert context is not None, "run_twin runs inside a Spark task"
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    worker = context.partitionId()
    results, times = twin_epoch(order, worker, tables)
    order.output.send(results, bins=order.workers, worker=worker, generation=1, epoch=order.epoch)
    done_us = time.time_ns() // 1000
    spare_the_collector()
    cells, _ = make_cells(times.column("time").to_numpy(), done_us, np.zeros(len(times), bool))
    report = to_text({"worker": worker, "records": len(times), "done_us": done_us, "pid": os.getpid()})
    yield pa.RecordBatch.from_pydict(
        {"report": pa.array([report], pa.string()), "cells": pa.array([cells.tobytes()], pa.binary())}
    )
