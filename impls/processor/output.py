"""Rows that a processor gives, as Spark takes them: Arrow columns of the output's types, and their form in JSON."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError, PySparkTypeError, PySparkValueError
from pyspark.sql import types as t
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import to_arrow_type

from impls.errors import UsageError
from impls.operators.rowjson import Written, json_rows

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"  # the name of the setting
NO_BOUND = str(2**31 - 1)  # what Spark takes for no bound on the bytes of a frame
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true",
    "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "false",
    "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    MAX_BYTES: NO_BOUND,
}


def pandas_settings(conf: Callable[[str, str], str | None]) -> dict[str, str]:
    """Returns a session's settings by which Spark takes rows to pandas and back; `conf` asks it, with a default."""
    return {name: conf(name, default) or default for name, default in _DEFAULTS.items()}


def rows_per_frame(table: pa.Table, settings: Mapping[str, str]) -> int:
    """Returns the most rows of a frame, by Spark's bounds on its rows and on their mean size in bytes."""
    most = int(settings["spark.sql.execution.arrow.maxRecordsPerBatch"])
    most = most if most > 0 else len(table)
    bound = settings[MAX_BYTES]
    if bound == NO_BOUND:
        return most
    mean: float = table.nbytes / len(table)
    return max(1, min(most, math.ceil(int(bound) / mean)))


class Rows:
    """Rows of pyspark, collected; to be given to `json_of` as Arrow."""

    def __init__(self, schema: t.StructType):
        arrow = to_arrow_type(schema, timezone="UTC", prefers_large_types=False)
        self._schema, self.rows = pa.schema(list(arrow)), list[dict[str, Any]]()
        self._nested = any(isinstance(f.dataType, t.ArrayType | t.MapType | t.StructType) for f in schema.fields)

    def take(self, given: Iterable[Any]) -> int:
        """Takes what a processor gives for a key, and returns how many rows; raises what Spark's worker raises."""
        before = len(self.rows)
        nested = self._nested  # where nothing is, the deep copy of a row costs more than all else here
        try:
            self.rows += [row.asDict(nested) for row in given]
        except AttributeError as error:
            if error.name != "asDict":
                raise
            kind = type(error.obj).__name__
            raise AttributeError(f"A processor gives rows as pyspark's Row, not as {kind}: {error}") from error
        return len(self.rows) - before

    def batches(self) -> Sequence[pa.RecordBatch]:
        """Returns the rows; raises PySparkTypeError for one that is not of the output's types."""
        try:
            return [pa.RecordBatch.from_pylist(self.rows, schema=self._schema)]
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise PySparkTypeError(self._wrong(error)) from error

    def _wrong(self, error: Exception) -> str:
        """Returns what is wrong with the rows."""
        for field in self._schema:
            for row in self.rows:
                try:
                    pa.array([row.get(field.name)], field.type)
                except (pa.ArrowException, ValueError, TypeError) as found:
                    return f"The output column {field.name} is {field.type}, not {row[field.name]!r}: {found}."
        return f"The output is not of its schema: {error}."


class Frames:
    """Frames of pandas, collected."""

    def __init__(self, schema: t.StructType, settings: dict[str, str]):
        self._schema, self._batches = t.StructType([t.StructField("_0", schema)]), list[pa.RecordBatch]()
        self._how = {
            "timezone": settings["spark.sql.session.timeZone"],
            "safecheck": settings["spark.sql.execution.pandas.convertToArrowArraySafely"] == "true",
            "assign_cols_by_name": settings["spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"]
            == "true",
            "int_to_decimal_coercion_enabled": settings[
                "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
            ]
            == "true",
        }

    def take(self, given: Iterable[Any]) -> int:
        """Takes what a processor gives for a key, and returns how many rows; raises what Spark's worker raises."""
        import pandas as pd  # noqa: PLC0415 - for processors of pandas only

        taken = 0
        for frame in given:
            if not isinstance(frame, pd.DataFrame):
                raise PySparkValueError(
                    "Invalid return type. Please make sure that the UDF returns a pandas.DataFrame when the specified "
                    "return type is StructType."
                )
            made = PandasToArrowConversion.convert([frame], self._schema, arrow_cast=True, **self._how)  # type: ignore[arg-type]
            self._batches.append(pa.RecordBatch.from_struct_array(made.column(0)))
            taken += len(frame)
        return taken

    def batches(self) -> Sequence[pa.RecordBatch]:
        """Returns the frames' rows."""
        return self._batches


def check_event_times(batch: pa.RecordBatch, column: str, watermark: int) -> None:
    """Raises PySparkRuntimeError, as Spark does, for a row with an event time up to a watermark, ms.

    The next operator would drop the row as late.
    """
    for moment in batch.column(column).to_pylist():
        if moment is not None and (time := t.TimestampType().toInternal(moment)) <= watermark * 1000:
            raise PySparkRuntimeError(
                "[EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED] Previous node emitted a row with "
                f"eventTime={time // 1000} which is older than current_watermark_value={watermark}."
            )


_PLAIN = (
    t.IntegralType, t.BooleanType, t.StringType, t.CharType, t.VarcharType, t.NullType, t.FractionalType, t.BinaryType,
    t.DateType, t.TimestampType, t.TimestampNTZType,
)  # fmt: skip


def json_of(schema: t.StructType, zone: str, *, micros: bool = False) -> Written:
    """Returns `impls.operators.rowjson.json_rows` for the columns of a schema of Spark's.

    Raises:
        UsageError: values of one of the types have no form in JSON here, or the zone is unknown.
    """
    for field in schema.fields:
        _check_form(field.dataType, f"The output column {field.name}")
    arrow = pa.schema(list(to_arrow_type(schema, timezone="UTC", prefers_large_types=False)))
    return json_rows(arrow, zone, micros=micros)


def _check_form(kind: t.DataType, where: str) -> None:
    """Raises UsageError for a type without a form in JSON."""
    if isinstance(kind, t.UserDefinedType):
        _check_form(kind.sqlType(), where)
    elif isinstance(kind, t.ArrayType):
        _check_form(kind.elementType, where)
    elif isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, _PLAIN) or isinstance(kind.keyType, t.BinaryType):
            raise UsageError(f"{where} has keys of the type {kind.keyType.simpleString()}: JSON has none, use strings.")
        _check_form(kind.valueType, where)
    elif isinstance(kind, t.StructType):
        for field in kind.fields:
            _check_form(field.dataType, where)
    elif not isinstance(kind, _PLAIN):
        raise UsageError(f"{where} has the type {kind.simpleString()}, which has no form in JSON: cast it to a string.")
