"""The order of a source's records: the columns `partition` and `offset`, or what stands for them in a folder of files.

An epoch that is run again must get its records in the order they had, and so must every key. Kafka numbers the records
of a partition. Files have no numbers: their records are ordered by the file's modification time, in milliseconds as
Spark lists it, then by the file's path (its 64-bit hash), then by the row's place in the file.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.errors import UsageError
from impls.store.records import TIES

__all__ = ["ordered"]

_ORDER = ("partition", "offset")
_PLACES = ("row_index", "file_block_start")  # Parquet counts rows; the rows of a block of another format come in order


def ordered(df: DataFrame) -> DataFrame:
    """Returns a streaming DataFrame with the columns `partition` and `offset`, and for files `TIES`, added if need be.

    Raises:
        UsageError: it has no order of which this knows.
    """
    missing = [name for name in _ORDER if name not in df.columns]
    if not missing:
        return df
    if not df.isStreaming:
        raise UsageError("The DataFrame is static: stream takes one of spark.readStream.")
    fields = _metadata(df)
    place = next((place for place in _PLACES if place in fields), None)
    if place is None or len(missing) < len(_ORDER):
        raise UsageError(
            f"The input has no column {missing[0]!r}; it has {', '.join(df.columns)}. A source that is neither Kafka's "
            "nor files needs columns of its own for the order of its records: partition, an integer, and offset, a "
            "long that grows within a partition; a record that is read again must have the same ones."
        )
    return df.select("*", *_of_files(place))


def _metadata(df: DataFrame) -> list[str]:
    """Returns the fields of a file source's column `_metadata`, none where there is no such column.

    Asked of the plan: to select what is not there raises an error whose stack pyspark prints, caught or not.
    """
    hidden = df._jdf.queryExecution().analyzed().metadataOutput()
    columns = [hidden.apply(place) for place in range(hidden.size())]
    return [name for column in columns if column.name() == "_metadata" for name in column.dataType().fieldNames()]


def _of_files(place: str) -> list[Column]:
    file, row = TIES
    return [
        F.lit(0).alias("partition"),
        F.unix_millis("_metadata.file_modification_time").alias("offset"),
        F.xxhash64("_metadata.file_path").alias(file),
        F.col(f"_metadata.{place}").cast("long").alias(row),
    ]
