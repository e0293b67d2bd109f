"""The Spark job of an epoch: each worker's step on the records in its partition, and what the workers answer."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from py4j.java_gateway import JavaObject
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from impls.operators.base import quoted
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.report import Report
from impls.spark.compiled import new_object
from impls.spark.step import REPORT_SCHEMA, call_foreach_batch, reports_of, run_step, schema_of
from impls.worker.cells import CELL
from impls.worker.query import QuerySpec
from impls.worker.sinks import ForeachBatch

_SOURCE = Path(__file__).with_name("Step.java")
_LENGTH = Struct(">i")
_COMMAND_BYTES_MAX = 1 << 20  # what is longer Spark sends as a broadcast

_Answered = list[tuple[Report, NDArray[np.void]]]


class StepJob:
    """Runs the job of each epoch of a query.

    One call of the JVM makes and runs it, see `Step.java`. Where results go to a function of the user's, or Spark has
    to send a step as a broadcast, PySpark does, by some 30 calls.
    """

    def __init__(self, spec: QuerySpec):
        self._spec = spec
        self._direct: _DirectJob | None = None
        self._broadcast = False  # Spark has to send this query's step as one

    def run(self, order: EpochOrder, routed: DataFrame, begin: float) -> Answers:
        """Runs the step on records in the partitions of their workers; `begin` is when building the job began.

        Where results go to a function of the user's, it is called before this returns.
        """
        if not (self._broadcast or isinstance(self._spec.output, ForeachBatch)):
            self._direct = self._direct or _DirectJob(routed.sparkSession)
            if command := self._direct.pickled(self._spec, order):
                built = time.perf_counter()
                return _answers(self._direct.run(command, routed), begin, built)
            self._broadcast = True  # in later epochs too, which then pickle it once
        return self._run_by_pyspark(order, routed, begin)

    def _run_by_pyspark(self, order: EpochOrder, routed: DataFrame, begin: float) -> Answers:
        sink = self._spec.output
        job = _mapped(routed, partial(run_step, self._spec, order), schema_of(sink))
        built = time.perf_counter()
        with reports_of(job, sink) as reports:
            found = [(Report.from_json(row["report"]), np.frombuffer(row["cells"], CELL)) for row in reports.collect()]
            answers = _answers(found, begin, built)
            return replace(
                answers, sink_ms=call_foreach_batch(sink, job, self._spec.operator, order.written.epoch, answers)
            )


def _mapped(frame: DataFrame, step: Callable[..., Any], schema: StructType) -> DataFrame:
    """Returns what `frame.mapInArrow(step, schema)` does, which fails at columns with a dot in their names (4.3)."""
    call = UserDefinedFunction(step, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    arguments = call(*[frame[quoted(name)] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(arguments._jc, False, None), frame.sparkSession)


def _answers(rows: _Answered, begin: float, built: float) -> Answers:
    return Answers.of(rows, build_ms=(built - begin) * 1e3, job_ms=(time.perf_counter() - built) * 1e3)


class _DirectJob:
    """Makes and runs jobs in one call of the JVM."""

    def __init__(self, spark: SparkSession):
        self._context: Any = spark.sparkContext
        self._step = new_object(spark, _SOURCE)
        self._like = UserDefinedFunction(run_step, REPORT_SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)._judf
        self._pickle: Callable[[Any], bytes] = CloudPickleSerializer().dumps  # type: ignore[no-untyped-call]
        _send_at_once(spark)

    def pickled(self, spec: QuerySpec, order: EpochOrder) -> bytes:
        """Returns the command of an epoch for a Python worker; empty where Spark has to send more beside it."""
        command = self._pickle((partial(run_step, spec, order), REPORT_SCHEMA))
        beside = list(self._context._pickled_broadcast_vars)
        self._context._pickled_broadcast_vars.clear()  # whoever pickles anew finds them again
        return b"" if beside or len(command) > _COMMAND_BYTES_MAX else command

    def run(self, command: bytes, routed: DataFrame) -> _Answered:
        packed = self._step.run(self._like, bytearray(command), routed._jdf)
        return [(Report.from_json(text.decode()), np.frombuffer(cells, CELL)) for text, cells in rows_of(packed)]


def rows_of(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the two columns of the rows that `Step.java` has packed."""
    parts, place = [], 0
    while place < len(packed):
        (length,) = _LENGTH.unpack_from(packed, place)
        place += _LENGTH.size + length
        parts.append(packed[place - length : place])
    return zip(parts[::2], parts[1::2], strict=True)


def _send_at_once(spark: SparkSession) -> None:
    """Has the JVM send answers to this thread's calls without waiting until the part before has been acknowledged.

    Py4J writes an answer in pieces of 8 KiB, so a longer one waited for the acknowledgement that the other side delays:
    40 ms on Linux.
    """
    server: Any = JavaObject("GATEWAY_SERVER", spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]
    server.getCallbackClient().getPerThreadConnection().getSocket().setTcpNoDelay(True)
