"""Rows that let Arrow's writer send what it has when nothing follows: a class for the JVM, made by Spark's compiler.

Between Kafka and Python a record would wait until the record behind it has come, and without an input for ever. Nothing
in Spark's SQL can look at the time while no row comes, so a small iterator does (`Flush.java`).
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.spark.compiled import new_object

__all__ = ["flushing"]

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
