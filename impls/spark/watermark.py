"""The watermark that `DataFrame.withWatermark` has given a frame."""

from pyspark.sql.types import StructField, StructType

from impls.protocol.eventtime import NO_TIME

__all__ = ["delay_ms", "event_time_sql", "with_watermark"]

_DELAY = "spark.watermarkDelayMs"  # in the metadata of a column with a watermark, and of windows of it


def with_watermark(schema: StructType) -> list[StructField]:
    """Returns the columns that have a watermark, windows of such a column among them."""
    return [field for field in schema.fields if _DELAY in field.metadata]


def delay_ms(column: StructField) -> int:
    """Returns the delay of a column's watermark, ms."""
    return int(column.metadata[_DELAY])


def event_time_sql(name: str) -> str:
    """Returns a column's timestamp, µs, as SQL; that of a record without one is `NO_TIME`."""
    return f"coalesce(unix_micros(`{name}`), {NO_TIME}L)"
