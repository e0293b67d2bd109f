"""The function that Spark runs in every worker's task, and an epoch's results as a DataFrame beside the reports.

The job is cached by the executors, so that it runs once: the driver takes the reports from it, then the function what
it wants of the results. A cached partition that is lost with its executor runs the worker's task again, which finds its
epoch committed and yields what it has stored.
"""

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from impls.errors import StateError
from impls.operators.base import Operator
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.report import Report
from impls.spark.readback import rows_of_json
from impls.spark.readiness import NAME, SEAT, host_name
from impls.store.records import Results
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task
from impls.worker.sinks import CollectingSink, ForeachBatch, Sink

REPORT_SCHEMA = StructType([StructField("report", StringType()), StructField("cells", BinaryType())])
_RESULTS = ("key", "value")
_RESULT_SCHEMA = StructType([*REPORT_SCHEMA.fields, *(StructField(name, BinaryType()) for name in _RESULTS)])
_COLUMNS = pa.schema([("report", pa.string()), ("cells", pa.binary()), *((name, pa.binary()) for name in _RESULTS)])
_ROWS = 50_000  # of results in an Arrow batch, fewer where they are large
_BATCH_BYTES = 64 << 20  # a column of a batch ends at 2 GiB
_LOG = logging.getLogger(__package__)


def schema_of(sink: Sink) -> StructType:
    """Returns the columns of what a worker's task yields: its report, and results where the sink takes a DataFrame."""
    return _RESULT_SCHEMA if isinstance(sink, ForeachBatch) else REPORT_SCHEMA


def with_results(answer: pa.RecordBatch, results: Results) -> Iterator[pa.RecordBatch]:
    """Yields a worker's results and behind them its answer, in the columns of `schema_of` a ForeachBatch."""
    total = len(results.keys)
    columns = [pa.nulls(total, pa.string()), pa.nulls(total, pa.binary())]
    columns += [pa.array(results.keys, pa.binary()), pa.array(results.payloads, pa.binary())]
    largest = max((len(payload) for payload in results.payloads), default=0)
    rows = min(_ROWS, _BATCH_BYTES // (largest + 1) + 1)
    yield from pa.table(columns, schema=_COLUMNS).to_batches(max_chunksize=rows)
    yield pa.RecordBatch.from_arrays([*answer.columns, *(pa.nulls(1, pa.binary()) for _ in _RESULTS)], schema=_COLUMNS)


@contextmanager
def reports_of(job: DataFrame, sink: Sink) -> Iterator[DataFrame]:
    """Gives the rows of an epoch's job that are reports; its results stay cached until the block ends."""
    if not isinstance(sink, ForeachBatch):
        yield job
        return
    job.persist()
    try:
        yield job.where("report is not null").select(*REPORT_SCHEMA.names)
    finally:
        job.unpersist()


def call_foreach_batch(sink: Sink, job: DataFrame, operator: Operator, epoch: int, answers: Answers) -> float:
    """Calls the function of a ForeachBatch with an epoch's results, if there are any; returns its milliseconds.

    Raises StateError when it raises; the epoch is then neither observed nor committed, and comes again.
    """
    if not isinstance(sink, ForeachBatch) or not any(report.results for report in answers.reports):
        return 0.0
    begin = time.perf_counter()
    try:
        sink.function(_results_frame(job, operator), epoch)
    except Exception as error:
        _LOG.error("The function of ForeachBatch failed in epoch %s.", epoch, exc_info=True)
        raise StateError(
            f"The function of ForeachBatch failed in epoch {epoch} with {type(error).__name__}: "
            f"{_first_line(error)}. Nothing is lost: started again, the query gives it the same epoch again."
        ) from error
    return (time.perf_counter() - begin) * 1e3


def _results_frame(job: DataFrame, operator: Operator) -> DataFrame:
    """Returns the rows of an epoch's job that are results: key and value, or the columns of the operator's schema."""
    frame = job.where("report is null").select(*_RESULTS)
    return frame if operator.output_schema is None else rows_of_json(frame, operator.output_schema)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:500].rstrip(".")


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
    if order.seating.seats:
        worker, host = order.seating.seats[worker], host_name()
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
    taken = CollectingSink()
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
    """Returns a worker's answer to the driver, one row of `impls.spark.step.REPORT_SCHEMA`."""
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
