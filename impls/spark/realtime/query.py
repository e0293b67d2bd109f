"""The query of real-time mode: source, columns, F, streaming shuffle, S, and a sink that gets nothing.

Between Kafka and Python a record would wait until the record behind it has come, and without an input for ever. Nothing
in Spark's SQL can look at the time while no row comes, so a small iterator does (`Flush.java`).
"""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.spark.compiled import new_object
from impls.spark.realtime.own import DONE_SCHEMA, MakeWorker, own_step
from impls.spark.realtime.route import ROUTED_SCHEMA, route_step
from impls.spark.realtime.settings import FULL_BYTES
from impls.spark.realtime.wiring import Wiring

_PAD = "pad"  # the last column: null, but in rows that fill a batch
_SOURCE = Path(__file__).with_name("Flush.java")


def flushing(df: DataFrame, *, full_bytes: int, idle_us: int, linger_us: int) -> DataFrame:
    """Returns the rows of a DataFrame with a further column `pad`, and rows of nulls behind those that nothing follows.

    Args:
        df: records.
        full_bytes: that make an Arrow batch full (`spark.sql.execution.arrow.maxBytesPerBatch`).
        idle_us: records are sent on when no other has come for so many microseconds.
        linger_us: records are sent on when the first of them has waited so long.
    """
    padded = df.withColumn(_PAD, F.lit(None).cast("binary"))
    spark = df.sparkSession
    encoder = spark._jvm.org.apache.spark.sql.Encoders.row(padded._jdf.schema().asNullable())  # type: ignore[union-attr]
    flush = new_object(spark, _SOURCE, len(padded.columns), full_bytes, idle_us, linger_us, in_tasks=True)
    return DataFrame(padded._jdf.mapPartitions(flush, encoder), spark)


_IDLE_US = 1_000
_LINGER_US = 8_000
_SINK = "noop"


def records_schema(frame: DataFrame) -> pa.Schema:
    """Returns the Arrow schema of records as tasks get them."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def worker_query(frame: DataFrame, make: MakeWorker, wiring: Wiring, batch: str) -> DataStreamWriter:
    """Returns the query, not started and without a place for Spark's checkpoint.

    Args:
        frame: records with the columns of `impls.spark.columns.prepared`.
        make: makes the worker of an S task.
        wiring: for both steps, with the `records_schema` of the frame.
        batch: duration of a batch of Spark, as in "60 seconds".
    """
    flushed = flushing(frame, full_bytes=FULL_BYTES, idle_us=_IDLE_US, linger_us=_LINGER_US)
    routed = flushed.mapInArrow(partial(route_step, wiring), ROUTED_SCHEMA)
    owned = routed.repartitionById(wiring.slots, F.col("slot")).mapInArrow(partial(own_step, make, wiring), DONE_SCHEMA)
    writer: Any = owned.writeStream.format(_SINK).outputMode("update")  # its type does not know realTime yet
    triggered: DataStreamWriter = writer.trigger(realTime=batch)
    return triggered
