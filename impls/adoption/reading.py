"""The state of a native query: what it is, its rows as Spark's own readers give them, its entries by bin."""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from impls.errors import UsageError
from impls.processor.keys import key_sql
from impls.spark.session import LOCAL_FILES
from impls.store.hashing import bin_sql

AGGREGATION, TRANSFORM_WITH_STATE = "aggregation", "transformWithState"
KINDS = {
    "stateStoreSave": AGGREGATION,
    "transformWithStateExec": TRANSFORM_WITH_STATE,
    "transformWithStateInPySparkExec": TRANSFORM_WITH_STATE,
    "transformWithStateInPandasExec": TRANSFORM_WITH_STATE,
}
REFUSED = {  # by Spark's short names of operators
    "symmetricHashJoin": "a join of two streams",
    "dedupe": "dropDuplicates",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark",
    "sessionWindowStateStoreSaveExec": "an aggregation by session windows",
    "flatMapGroupsWithState": "mapGroupsWithState or flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "globalLimit": "a limit",
}


@dataclass(frozen=True, slots=True)
class StateOperator:
    """The one stateful operator of a native query: its kind, its number, its partitions, and what Spark notes of it."""

    kind: str
    number: int
    partitions: int
    properties: dict[str, Any]


def the_operator(operators: Sequence[StateOperator], name: str) -> StateOperator:
    """Returns the one operator of a query among those that its metadata lists, whose `kind` is Spark's name of them.

    Raises:
        UsageError: there is none, there are several, or it is one that cannot be adopted.
    """
    numbers = {operator.number for operator in operators}
    if not numbers:
        raise UsageError(
            f"The checkpoint {name} has no metadata of a stateful operator: the query is stateless, or was last run by "
            "a Spark before 4.0; run a batch of it with Spark 4.0 or newer first."
        )
    if len(numbers) > 1:
        kinds = ", ".join(sorted({operator.kind for operator in operators}))
        raise UsageError(
            f"The query of {name} has {len(numbers)} stateful operators ({kinds}): only one can be adopted."
        )
    first = operators[0]
    if first.kind in REFUSED:
        raise UsageError(
            f"The state of {name} is that of {REFUSED[first.kind]}, which cannot be adopted: only groupBy().agg() and "
            "transformWithState can."
        )
    if first.kind not in KINDS:
        raise UsageError(f"The state of {name} is that of an operator that is not known here: {first.kind}.")
    return StateOperator(KINDS[first.kind], first.number, first.partitions, first.properties)


_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def reading_session(spark: SparkSession, *, state_ids: bool) -> SparkSession:
    """Returns a session of the same application that can read a checkpoint of Spark's.

    `state_ids` is whether files of its state have ids: Spark's offset log does not say so, and its reader asks the
    session.
    """
    session = spark.newSession()
    for name, value in {**LOCAL_FILES, _FORMAT: "2" if state_ids else "1"}.items():
        session.conf.set(name, value)
    return session


BREAKING = re.compile(r"[\s%#?\[\]{}<>^`|\"\\]")


@contextmanager
def plain_place(location: str, master: str) -> Iterator[str]:
    """Yields a place by which Spark's readers of state find a local checkpoint, whatever is in its path.

    Spark 4.3's readers take a path for a URI and back: of one with a blank, %, # or a bracket they say "No committed
    batch found". By a link with a plain name they find it.

    Raises UsageError where other hosts, which do not have the link, are to read it.
    """
    if "://" in location or not BREAKING.search(location):
        yield location
        return
    with tempfile.TemporaryDirectory(prefix="adopt-") as folder:
        link = Path(folder) / "checkpoint"
        if not master.startswith("local") or BREAKING.search(str(link)):
            raise UsageError(
                f"Spark's readers of state do not find a checkpoint by the path {location}: rename the folders that "
                "have a blank, %, # or a bracket in their names."
            )
        link.symlink_to(location)
        yield str(link)


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
