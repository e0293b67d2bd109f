"""Makes the Python workers of a local session ready before the first epoch: forked, and connected to the broker.

A worker's first results wait for its producer: half a second until the broker has given it an id. In the middle of a
rescale that is the longest part of the epoch in which a new worker first runs.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from impls.worker.output import Output

__all__ = ["warm_workers"]


def warm_workers(spark: SparkSession, output: Output) -> int:
    """Connects a worker for each task that can run at once and returns their number, 0 where it cannot be done.

    On a cluster nothing is done: its tasks need not come back to the workers of this job.
    """
    context = spark.sparkContext
    if not (context.master or "").startswith("local"):
        return 0
    tasks = context.defaultParallelism

    def connect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (batch.slice(0, 0) for batch in batches)
        BarrierTaskContext.get().barrier()  # so that each task has a worker of its own
        output.connect()

    try:
        rows = spark.range(0, tasks, 1, tasks)
        rows.mapInArrow(connect, rows.schema, barrier=True).collect()
    except PySparkException:  # slots are taken by another query: the first epoch will do it
        return 0
    return tasks
