"""Results as a DataFrame for a function of the user's: an epoch's job yields them beside the workers' reports.

The job is cached by the executors, so that it runs once: the driver takes the reports from it, then the function what
it wants of the results. A cached partition that is lost with its executor runs the worker's task again, which finds its
epoch committed and yields what it has stored.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from impls.errors import StateError
from impls.operators.base import Operator
from impls.protocol.order import Answers
from impls.store.records import Results
from impls.worker.sinks import ForeachBatch, Sink

__all__ = ["REPORT_SCHEMA", "given", "reports_of", "schema_of", "with_results"]

REPORT_SCHEMA = StructType([StructField("report", StringType()), StructField("cells", BinaryType())])
_RESULTS = ("key", "value")
_RESULT_SCHEMA = StructType([*REPORT_SCHEMA.fields, *(StructField(name, BinaryType()) for name in _RESULTS)])
_COLUMNS = pa.schema([("report", pa.string()), ("cells", pa.binary()), *((name, pa.binary()) for name in _RESULTS)])
_ROWS = 50_000  # of results in an Arrow batch
_LOG = logging.getLogger(__package__)


def schema_of(sink: Sink) -> StructType:
    """Returns the columns of what a worker's task yields: its report, and results where the sink takes a DataFrame."""
    return _RESULT_SCHEMA if isinstance(sink, ForeachBatch) else REPORT_SCHEMA


def with_results(answer: pa.RecordBatch, results: Results) -> Iterator[pa.RecordBatch]:
    """Yields a worker's results and behind them its answer, in the columns of `schema_of` a ForeachBatch."""
    total = len(results.keys)
    columns = [pa.nulls(total, pa.string()), pa.nulls(total, pa.binary())]
    columns += [pa.array(results.keys, pa.binary()), pa.array(results.payloads, pa.binary())]
    yield from pa.table(columns, schema=_COLUMNS).to_batches(max_chunksize=_ROWS)
    yield pa.RecordBatch.from_arrays([*answer.columns, *(pa.nulls(1, pa.binary()) for _ in _RESULTS)], schema=_COLUMNS)


@contextmanager
def reports_of(job: DataFrame, sink: Sink) -> Iterator[DataFrame]:
    """Gives the rows of an epoch's job that are reports; its results stay cached until the block ends."""
    if not isinstance(sink, ForeachBatch):
        yield job
        return
    job.persist()
    try:
        yield job.where("report is not null").select(*REPORT_SCHEMA.names)
    finally:
        job.unpersist()


def given(sink: Sink, job: DataFrame, operator: Operator, epoch: int, answers: Answers) -> float:
    """Calls the function of a ForeachBatch with an epoch's results, if there are any; returns its milliseconds.

    Raises StateError when it raises; the epoch is then neither observed nor committed, and comes again.
    """
    if not isinstance(sink, ForeachBatch) or not any(report.results for report in answers.reports):
        return 0.0
    begin = time.perf_counter()
    try:
        sink.function(_results_frame(job, operator), epoch)
    except Exception as error:
        _LOG.error("The function of ForeachBatch failed in epoch %s.", epoch, exc_info=True)
        raise StateError(
            f"The function of ForeachBatch failed in epoch {epoch} with {type(error).__name__}: "
            f"{_first_line(error)}. Nothing is lost: started again, the query gives it the same epoch again."
        ) from error
    return (time.perf_counter() - begin) * 1e3


def _results_frame(job: DataFrame, operator: Operator) -> DataFrame:
    """Returns the rows of an epoch's job that are results: key and value, or the columns of the operator's schema."""
    frame = job.where("report is null").select(*_RESULTS)
    if operator.output_schema is None:
        return frame
    row = F.from_json(F.col("value").cast("string"), operator.output_schema, {"mode": "FAILFAST"})
    return frame.select(row.alias("row")).select("row.*")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:500].rstrip(".")
