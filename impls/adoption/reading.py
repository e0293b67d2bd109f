"""The state of a native query as Spark's own readers of a checkpoint give it: metadata, schema, rows."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from impls.adoption.state import StateOperator
from impls.errors import UsageError

__all__ = ["operators_of", "reading_session", "refused", "state_frame"]

_LOCAL = {  # RocksDB's files are copied through Hadoop's LocalFileSystem, and not by the raw one
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def reading_session(spark: SparkSession, *, state_ids: bool) -> SparkSession:
    """Returns a session of the same application that can read a checkpoint of Spark's.

    `state_ids` is whether files of its state have ids: Spark's offset log does not say so, and its reader asks the
    session.
    """
    session = spark.newSession()
    for name, value in {**_LOCAL, _FORMAT: "2" if state_ids else "1"}.items():
        session.conf.set(name, value)
    return session


@contextmanager
def refused(location: str) -> Iterator[None]:
    """Turns what Spark says of state that it cannot read, or hand on, into a UsageError."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        named = [line for line in lines if "StateError" in line or "[" in line[:3]]
        raise UsageError(f"Spark cannot take over the state in {location}: {(named or lines)[0][:400]}") from error


def operators_of(spark: SparkSession, location: str, batch: int) -> list[StateOperator]:
    """Returns the stateful operators of a checkpoint, those with several stores once for each of them."""
    with refused(location):
        rows = spark.read.format("state-metadata").option("batchId", batch).load(location).collect()
    return [
        StateOperator(row["operatorName"], row["operatorId"], row["numPartitions"], _properties(row)) for row in rows
    ]


def _properties(row: object) -> dict[str, object]:
    text = row["operatorProperties"]  # type: ignore[index]
    return dict(json.loads(text)) if text else {}


def state_frame(spark: SparkSession, location: str, batch: int, operator: int, **options: str) -> DataFrame:
    """Returns the state behind a batch, one Spark partition for each of the state's."""
    reader = spark.read.format("statestore").option("batchId", batch).option("operatorId", operator)
    with refused(location):
        return reader.options(**options).load(location)
