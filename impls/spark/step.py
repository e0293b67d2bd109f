"""The function that Spark runs in every worker's task: it feeds the worker core and yields its report."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from impls.protocol.order import EpochOrder
from impls.protocol.report import Report
from impls.spark.anchor import NAME, SEAT, host_name
from impls.spark.foreach import with_results
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task
from impls.worker.sinks import ForeachBatch, Taken

__all__ = ["answer_of", "freeze_imports", "run_step"]

_ready: set[str] = set()  # queries whose broker this process has been connected to for


def run_step(spec: QuerySpec, order: EpochOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one epoch of the worker whose number is the partition's, also when the partition is empty.

    On a cluster the order names the worker of each partition, and a partition without records has a row of nulls.

    The iterator is drained before anything can fail: Spark cannot use the Python worker again otherwise.
    """
    context = TaskContext.get()
    assert context is not None, "run_step runs inside a Spark task"
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    worker, host = context.partitionId(), ""
    if order.seats:
        worker, host = order.seats[worker], host_name()
        tables = [table for table in map(_own_rows, tables) if len(table)]
    if worker >= 0:
        yield from _answers(Task(spec, order, worker, context.attemptNumber(), host), tables)
    else:
        _be_ready(spec)


def _answers(task: Task, tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Runs a worker's epoch and yields its answer, behind its results where those go to Spark."""
    if not isinstance(task.spec.output, ForeachBatch):
        report, cells = run_epoch(task, tables)
        freeze_imports()
        yield answer_of(report, cells)
        return
    taken = Taken()
    report, cells = run_epoch(replace(task, spec=replace(task.spec, output=taken)), tables)
    freeze_imports()
    yield from with_results(answer_of(report, cells), taken.results)


def _be_ready(spec: QuerySpec) -> None:
    """Connects a process whose seat is empty to the broker, once: a worker that comes to sit there need not wait."""
    if spec.query not in _ready:
        _ready.add(spec.query)
        spec.output.connect()
        freeze_imports()


def _own_rows(table: pa.Table) -> pa.Table:
    """Returns the records of a task's rows, without what the join of seats has added."""
    table = table.drop_columns([NAME, SEAT])
    bins = table.column("bin")
    return table.filter(bins.is_valid()) if bins.null_count else table


def answer_of(report: Report, cells: NDArray[np.void]) -> pa.RecordBatch:
    """Returns a worker's answer to the driver, one row of `impls.spark.foreach.REPORT_SCHEMA`."""
    return pa.RecordBatch.from_pydict(
        {"report": pa.array([report.to_json()], pa.string()), "cells": pa.array([cells.tobytes()], pa.binary())}
    )


@cache
def freeze_imports() -> None:
    """Once per process: excludes everything loaded so far from garbage collection.

    Spark's Python worker runs a full collection after every task; over all imported modules that was half of its CPU.
    """
    gc.collect()
    gc.freeze()
