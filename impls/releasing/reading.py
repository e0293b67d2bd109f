"""The state of a stopped query as a DataFrame with rows of Spark's column families, which Spark's tasks read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lmdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from impls.aggregation import KeyColumns
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.aggregates.measures import Measure
from impls.reading.forms import Entries, key_schema
from impls.reading.state import StateAt
from impls.reading.stored import StoredQuery, restored
from impls.releasing.families import Family, ProcessorRows, ProcessorState, Row, Widening, wide_schema
from impls.releasing.position import Until
from impls.store import naming
from impls.store.offsets import Offsets


@dataclass(frozen=True)
class Pieces:
    """Reads pieces of a query's state in a task.

    Attributes:
        stored: the query, with a pin.
        pieces: how many there are.
        scratch: folder for the state of a piece.
        until: up to where all bins are to have applied the input; None where they have.
    """

    stored: StoredQuery
    pieces: int
    scratch: str | None
    until: Until | None

    def entries(self, number: int) -> Iterator[Entries]:
        """Yields what each bin of a piece holds; raises UsageError for a bin of another version of the pipeline."""
        ended = self.stored.ended(None)
        bins = ended.piece(number, self.pieces)
        with restored(self.stored, ended, self.scratch, bins) as txn:
            state = StateAt(self.stored, ended, txn)
            self._check_until(txn)
            for bin_ in bins:
                if state.shape(bin_):
                    raise UsageError(
                        "The pipeline of the query was changed while it ran: what its state is now, no operator of "
                        "Spark's reads."
                    )
                yield state.entries(bin_)

    def _check_until(self, txn: lmdb.Transaction) -> None:
        """Raises UsageError where bins have applied more of the input than others may have."""
        applied = Offsets(self.stored.bins)
        applied.load(txn)
        if self.until is not None and self.until.is_passed(applied.behind()):
            raise UsageError(
                "The query did not end by its stop in real time, and its workers had not come equally far then: start "
                "it again, and stop it."
            )


@dataclass(frozen=True)
class _OfProcessor:
    pieces: Pieces
    state: ProcessorState

    def __call__(self, number: int) -> Iterator[Row]:
        rows, widen = ProcessorRows(self.state), Widening(self.state.families())
        for entries in self.pieces.entries(number):
            yield from map(widen, rows.rows(entries))


def processor_frame(spark: SparkSession, pieces: Pieces, state: ProcessorState) -> DataFrame:
    """Returns the rows of a processor's state, see `wide_schema`."""
    rows = spark.sparkContext.parallelize(range(pieces.pieces), pieces.pieces).flatMap(_OfProcessor(pieces, state))
    java: Any = rows._to_java_object_rdd()
    schema = wide_schema(state.key, state.families())
    made = spark._jsparkSession.applySchemaToPythonRDD(java.rdd(), schema.json())  # values are Spark's own already
    return DataFrame(made, spark)


def distinct(operator: Aggregate) -> list[Measure]:
    """Returns the aggregates without those that others repeat, which Spark keeps once."""
    found: dict[tuple[str, str], Measure] = {}
    for one in operator.measures:
        found.setdefault((one.function, one.column), one)
    return list(found.values())


@dataclass(frozen=True)
class _OfAggregates:
    pieces: Pieces
    form: dict[str, Any]
    schema: StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        operator = Aggregate.of_form({**self.form, "ansi": False})
        measures = distinct(operator)
        keys, schema = KeyColumns(key_schema(self.form["keys"])), to_arrow_schema(self.schema, timezone="UTC")
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for entries in self.pieces.entries(number):
                    kept = [(key, value) for key, value in entries if key[:1] < naming.LIST]  # without expiries
                    if not kept:
                        continue
                    buffers = dict(zip(operator.measures, operator.buffers_of([raw for _, raw in kept]), strict=True))
                    columns = [*keys([key for key, _ in kept]).columns]
                    columns += [one for measure in measures for one in buffers[measure]]
                    yield _cast(columns, schema)


def _cast(columns: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    whole = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
    return pa.RecordBatch.from_arrays(
        [one.cast(kind) for one, kind in zip(whole, schema.types, strict=True)], schema=schema
    )


def aggregate_frame(spark: SparkSession, pieces: Pieces, form: dict[str, Any], family: Family) -> DataFrame:
    """Returns the rows of the state of aggregates, see `wide_schema`."""
    parts = [("k", family.key), ("b", family.value)]
    names = {part: [f"{part}{n}" for n in range(len(kind))] for part, kind in parts}
    flat = StructType([
        StructField(name, field.dataType)
        for part, kind in parts for name, field in zip(names[part], kind.fields, strict=True)
    ])  # fmt: skip
    read = spark.range(0, pieces.pieces, 1, pieces.pieces).mapInArrow(_OfAggregates(pieces, form, flat), flat)
    key, value = (
        F.struct(*[F.col(name).alias(field.name) for name, field in zip(names[part], kind.fields, strict=True)])
        for part, kind in parts
    )
    return read.select(
        F.lit(0).alias("family"), F.lit(0).cast("long").alias("place"), key.alias("grouping"), key.alias("key0"),
        value.alias("value0"),
    )  # fmt: skip


def placed(wide: DataFrame, partitions: int) -> DataFrame:
    """Returns rows in the partitions in which Spark's operators look for them, the items of a list in their order.

    Spark's hash of a struct is that of its fields one behind the other, as of several columns.
    """
    return wide.repartition(partitions, "grouping").sortWithinPartitions("place")
