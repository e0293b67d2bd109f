"""Settings of a session for real-time mode, and the query's limits that depend on them."""

from collections.abc import Mapping

from impls.realtime.blobs import PAD_BYTES

FULL_BYTES = PAD_BYTES  # of an Arrow batch between Spark and Python: it is sent when it has as many
_RECORDS_MAX = 4096  # and no more rows

_SETTINGS = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # mapInArrow is not on Spark's list of what it tested
    "spark.sql.streaming.realTimeMode.minBatchDuration": "500ms",  # tests end batches; Spark's bound is 5 s
    "spark.python.udf.pipelined.enabled": "true",  # else a task that waits for input hands no output on
    "spark.python.udf.pipelined.queueDepth": "64",  # Arrow batches that Python reads ahead; 2 let the JVM wait
    "spark.sql.execution.python.udf.buffer.size": "128",  # else 64 KiB gather before Python sees anything
    "spark.buffer.size": "512",  # the same on the way back
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_RECORDS_MAX),
    "spark.sql.execution.arrow.maxBytesPerBatch": f"{FULL_BYTES}b",  # what a blob has, so that it is a batch by itself
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",  # a blob waits for others so long; 50 otherwise
    "spark.shuffle.streaming.checksum.enabled": "false",  # between tasks of one process there is no network to distrust
}


def real_time_settings(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the settings for `spark_session(..., settings=...)`, and further ones."""
    return {**_SETTINGS, **(more or {})}


def real_time_threads(partitions: int, slots: int) -> int:
    """Returns the `threads` of a session: all tasks of a query run at once, and two are left for other jobs."""
    return partitions + slots + 2
