"""The query of real-time mode: source, columns, F, streaming shuffle, S, and a sink that gets nothing."""

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from impls.spark.realtime.flush import flushing
from impls.spark.realtime.own import DONE_SCHEMA, MakeWorker, own_step
from impls.spark.realtime.route import ROUTED_SCHEMA, route_step
from impls.spark.realtime.settings import FULL_BYTES
from impls.spark.realtime.wiring import Wiring

__all__ = ["records_schema", "worker_query"]

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
