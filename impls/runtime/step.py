"""The function that Spark runs in every worker's task: it feeds the worker core and yields its report."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from impls.runtime.order import StepOrder
from impls.runtime.worker import run_epoch

__all__ = ["REPORT_SCHEMA", "run_step"]

REPORT_SCHEMA = "report string, cells binary"


def run_step(order: StepOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one epoch of the worker whose number is the partition's, also when the partition is empty.

    The iterator is drained before anything can fail: Spark cannot use the Python worker again otherwise.
    """
    context = TaskContext.get()
    assert context is not None, "run_step runs inside a Spark task"
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    report, cells = run_epoch(order, context.partitionId(), context.attemptNumber(), tables)
    yield pa.RecordBatch.from_pydict(
        {"report": pa.array([report.to_json()]), "cells": pa.array([cells.tobytes()], pa.binary())}
    )
