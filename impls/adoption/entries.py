"""Entries of bins as a Spark DataFrame: columns bin (int), key (the entry's) and value, both binary."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from impls.processor.keys import key_sql
from impls.store.hashing import bin_sql

__all__ = ["ENTRY_SCHEMA", "keyed_state", "struct_of"]

ENTRY_SCHEMA = "bin int, key binary, value binary"


def keyed_state(state: DataFrame, data: Sequence[str], bins: int) -> DataFrame:
    """Returns, of state with the grouping key as the struct `key`, the columns bin and key (bytes) and data.

    Raises UsageError when the grouping key has a type that no key can have.
    """
    kind = struct_of(state, "key")
    numbered = StructType([StructField(f"k{n}", field.dataType) for n, field in enumerate(kind.fields)])
    named = state.select(F.col("key").cast(numbered).alias("k"), *data)
    raw = F.expr(key_sql(numbered, [f"k.{name}" for name in numbered.names]))
    keyed = named.select(raw.alias("key"), *data)
    return keyed.select(F.expr(bin_sql("key", bins)).alias("bin"), "key", *data)


def struct_of(state: DataFrame, column: str) -> StructType:
    """Returns the type of a column of state that is a struct."""
    kind = state.schema[column].dataType
    assert isinstance(kind, StructType), "Spark's reader gives keys and values as structs"
    return kind
