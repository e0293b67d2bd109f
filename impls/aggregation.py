"""`aggregate`: Spark's `groupBy(keys).agg(...)` in update mode, with a handle to rescale it while it runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from impls.api import stream
from impls.driver.handle import StreamHandle
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.processor.keys import key_sql

__all__ = ["GROUPING_KEY", "aggregate"]

GROUPING_KEY = "grouping_key"  # the column by which records go to bins


def aggregate(df: DataFrame, keys: Sequence[str], values: Mapping[str, str], **options: Any) -> StreamHandle:
    """Starts `df.groupBy(keys).agg(values)` in update mode and returns its handle.

    A result is, per key and epoch, the key's row after the epoch as JSON; its Kafka key is the grouping key's bytes
    (`impls.processor.keys`).

    Args:
        df: a streaming DataFrame, see `impls.stream`.
        keys: the columns of the key, of any of the types in `impls.operators.aggregates.types`.
        values: name of each result and the aggregate: count(*), or count, sum, min, max or avg of a column.
        options: what `impls.stream` takes besides: results, state_dir, checkpoint, workers and so on.

    Raises:
        UsageError: as `impls.stream`; a column is missing, or an aggregate or a type is unknown.
    """
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    if missing := [key for key in keys if key not in types]:
        raise UsageError(f"The input has no column {missing[0]!r}; it has {', '.join(df.columns)}.")
    operator = Aggregate({key: types[key] for key in keys}, values, types)
    schema = StructType([df.schema[key] for key in keys])
    keyed = df.withColumn(GROUPING_KEY, F.expr(key_sql(schema, [f"`{key}`" for key in keys])))
    return stream(keyed, key=GROUPING_KEY, operator=operator, **options)
