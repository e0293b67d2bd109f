"""Columns of the input as Spark finds them: by names whose case does not count, and as keys, which are their bytes."""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StringType

from impls.errors import UsageError


def column_named(df: DataFrame, name: str) -> str:
    """Returns the column that a name means: of any case, unless `spark.sql.caseSensitive` is set.

    Raises UsageError when there is none, or there are several.
    """
    return matching(df.columns, name, exact=case_sensitive(df))


def case_sensitive(df: DataFrame) -> bool:
    """Returns whether names that differ in upper and lower case alone are of different columns."""
    return str(df.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"


def matching(columns: Iterable[str], name: str, *, exact: bool) -> str:
    """Returns the one of the columns that a name means; `exact` is whether upper and lower case differ.

    >>> matching(["user", "n"], "USER", exact=False)
    'user'

    Raises UsageError when there is none, or there are several.
    """
    all_columns = list(columns)
    means = [one for one in all_columns if one == name or (not exact and one.lower() == name.lower())]
    if not means:
        raise UsageError(f"The input has no column {name!r}; it has {', '.join(all_columns)}.")
    if len(means) > 1:
        raise UsageError(f"The input has {len(means)} columns that {name!r} means: rename all but one.")
    return means[0]


def check_collation(kind: DataType, where: str) -> None:
    """Raises UsageError for strings that are equal without having equal bytes, as under the collation UTF8_LCASE."""
    if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
        raise UsageError(
            f"{where} has the type {kind.simpleString()}, under whose collation different bytes are equal: a key is "
            "its bytes. Make them equal first, as lower(...) does, and give the result the collation UTF8_BINARY."
        )
