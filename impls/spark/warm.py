"""Python workers that are ready for a query's first epoch: forked, and connected to the broker.

A worker's first results wait for its producer, half a second until the broker has given it an id. In the middle of a
rescale that is the longest part of the epoch in which a new worker first runs.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from impls.spark.master import is_local
from impls.worker.sinks import Sink

__all__ = ["warm_workers"]

_MEET_S = 1.0  # for which a task waits for the others; where other queries have the slots, they never come
_POLL_S = 0.002


def warm_workers(spark: SparkSession, output: Sink) -> int:
    """Connects a worker for each task that can run at once and returns their number, 0 where it cannot be done.

    On a cluster nothing is done: its tasks need not come back to the workers of this job.
    """
    context = spark.sparkContext
    if not is_local(context.master):
        return 0
    tasks, folder = context.defaultParallelism, tempfile.mkdtemp(dir=context._temp_dir)
    try:
        rows = spark.range(0, tasks, 1, tasks)
        rows.mapInArrow(partial(_connect, output, folder, tasks), rows.schema).collect()
        return len(list(Path(folder).glob("[0-9]*")))
    except PySparkException:  # the first epoch will do it
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _connect(output: Sink, folder: str, tasks: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (batch.slice(0, 0) for batch in batches)
    _meet(Path(folder), tasks)
    output.connect()


def _meet(folder: Path, tasks: int) -> None:
    """Waits until so many processes are here, so that each task has one of its own; one that gives up sends all on.

    A barrier of Spark's would do it too, and sleeps for a second in each of its tasks.
    """
    (folder / str(os.getpid())).touch()
    given_up, deadline = folder / "given-up", time.monotonic() + _MEET_S
    while len(list(folder.glob("[0-9]*"))) < tasks and not given_up.exists():
        if time.monotonic() > deadline:
            given_up.touch()
        time.sleep(_POLL_S)
