"""Rows that workers wrote as JSON, as a DataFrame of their columns again; maps have keys that are no strings too."""

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)


def rows_of_json(frame: DataFrame, schema: str, *, beside: Sequence[str] = ()) -> DataFrame:
    """Returns the rows whose JSON is in the column `value`, as text or bytes.

    Args:
        frame: it has the column.
        schema: of the rows, as DDL or as a StructType's JSON.
        beside: further columns of the frame, which come first.
    """
    kind = StructType.fromJson(json.loads(schema)) if schema.startswith("{") else frame.sparkSession._parse_ddl(schema)
    read = F.from_json(F.col("value").cast("string"), _with_texts(kind), {"mode": "FAILFAST"})  # type: ignore[arg-type]
    return frame.select(*beside, _keyed(read, kind).alias("row")).select(*beside, "row.*")


def _with_texts(kind: DataType) -> DataType:
    """Returns a type with strings for the keys of maps, which Spark reads alone."""
    if isinstance(kind, MapType):
        return MapType(StringType(), _with_texts(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, ArrayType):
        return ArrayType(_with_texts(kind.elementType), kind.containsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _with_texts(f.dataType), f.nullable) for f in kind.fields])
    return kind


def _keyed(column: Column, kind: DataType) -> Column:
    """Returns a column of `_with_texts(kind)` with the maps' own keys."""
    if _with_texts(kind) == kind:
        return column
    if isinstance(kind, MapType):
        values = F.transform_values(column, lambda _, value: _keyed(value, kind.valueType))
        return F.transform_keys(values, lambda key, _: _key(key, kind.keyType))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda item: _keyed(item, kind.elementType))
    assert isinstance(kind, StructType), "other types are the same with texts"
    fields = [_keyed(column.getField(field.name), field.dataType).alias(field.name) for field in kind.fields]
    return F.when(column.isNotNull(), F.struct(*fields))


def _key(text: Column, kind: DataType) -> Column:
    """Returns a key from its text; times are numbers in it."""
    if isinstance(kind, DateType):
        return F.date_from_unix_date(text.cast("int"))
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(text.cast("long"))
    if isinstance(kind, TimestampNTZType):
        seconds = (text.cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)")
        return F.expr("timestamp_ntz'1970-01-01 00:00:00'") + F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), seconds)
    return text.cast(kind)
