"""Results of one query as the input of another, each once, across failures and rescales of either.

A worker that is run again sends its results again. Each has a number in its header (`impls.worker.results`), and those
of a worker grow in each partition of the topic. So a result is known by its *producer*, which is query, worker and
partition, and by its number: each bin of the next query keeps with its state the last number that it has applied of
each producer, and drops a repeat (`impls.store.numbers.Numbers`). Records keep the order that they have in the topic.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from impls.errors import UsageError
from impls.spark.readback import rows_of_json
from impls.spark.topics import LINKED
from impls.worker.output import Output
from impls.worker.results import HEADER, NUMBER

_EPOCH, _INDEX, _INDEX_BITS = 15, 19, 31  # where they begin in a header, from 1; bits of the second in a number
_HEADER = f"get(filter(headers, one -> one.key = '{HEADER}'), 0).value"
_IS_RESULT = f"length({_HEADER}) = {NUMBER.size}"
_NAMES = ("key", "partition", "offset", "timestamp")


def results_of(
    spark: SparkSession,
    output: Output,
    schema: str | StructType | None = None,
    *,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Returns the results of a query as a streaming DataFrame for `impls.stream` and its like, each result once.

    Repeats, which a query sends again after a failure, are dropped by the bins of the query that reads them. Spark's
    own operators on this DataFrame see them. Messages without a number are refused as records that cannot be applied,
    see `on_error` of `impls.stream`; with a schema Spark's own operators see nulls in their fields.

    Columns: `key`, as the query gave it (binary), `partition`, `offset` and `timestamp` of the message, and the fields
    of the results, which are JSON; without a schema `value`, their text. Several queries may send to the topic.

    Args:
        spark: the session.
        output: where the query sends its results; its `options`, of another client, are not used.
        schema: of a result, as the columns of DDL or a StructType, with none of the names above.
        options: further ones of Spark's Kafka source, such as those of SASL and TLS (kafka.*).

    Raises:
        UsageError: the schema has no columns, or one of a name that is taken.
    """
    given = {"startingOffsets": "earliest", **(options or {}), LINKED: "true", "includeHeaders": "true"}
    if any(name.lower() == "startingoffsets" for name in options or {}):
        del given["startingOffsets"]
        given |= {name: value for name, value in (options or {}).items() if name.lower() == "startingoffsets"}
    reader = spark.readStream.format("kafka").options(**given)
    frame = reader.option("kafka.bootstrap.servers", output.bootstrap).option("subscribe", output.topic).load()
    if schema is None:
        return frame.selectExpr(*_NAMES, "cast(value AS string) AS value")
    numbered = frame.withColumn("value", expr(f"if({_IS_RESULT}, value, NULL)"))  # else it may be no JSON either
    return rows_of_json(numbered, _checked(spark, schema).json(), beside=_NAMES)


def _checked(spark: SparkSession, schema: str | StructType) -> StructType:
    kind = spark._parse_ddl(schema) if isinstance(schema, str) else schema
    if not isinstance(kind, StructType):
        raise UsageError(f"The schema {schema!r} has no columns: give it as 'name type, name type'.")
    if taken := [name for name in kind.fieldNames() if name.lower() in _NAMES]:
        raise UsageError(
            f"The results have a field {taken[0]!r}, a name that each message has for its own: read them without a "
            "schema, and take the field from `value` under another name."
        )
    return kind


def producer_sql(place: int) -> str:
    """Returns the producer of a message by its columns, a number below 0, as SQL; NULL of what is no result.

    Who reads a topic twice has two producers of each. With 63 bits of a hash two of a thousand producers are the same
    once in 10^13 topics.

    Args:
        place: of the source among those of the query.
    """
    who = f"xxhash64(substring({_HEADER}, 1, 10), topic, partition{f', {place}' if place else ''})"  # query and worker
    return f"if({_IS_RESULT}, {who} | shiftleft(1L, 63), NULL)"


def number_sql() -> str:
    """Returns the number of a message among those of its producer, as SQL; NULL of what is no result."""
    index, above = _little(_INDEX), _little(_INDEX + 4)
    few = f"{above} = 0 AND {index} < {1 << _INDEX_BITS}L"
    number = f"shiftleft({_little(_EPOCH)}, {_INDEX_BITS}) | if({few}, {index}, {_MANY})"
    return f"if({_IS_RESULT}, {number}, NULL)"


def _little(begin: int) -> str:
    """Returns the 4 bytes of a header from a place on, the lowest first, as a number."""
    parts = ", ".join(f"substring({_HEADER}, {place}, 1)" for place in range(begin + 3, begin - 1, -1))
    return f"bigint(conv(hex(concat({parts})), 16, 10))"


_MANY = (
    "bigint(raise_error(concat('The message at offset ', offset, ' of ', topic, '-', partition, ' is behind 2^31 other "
    "results of an epoch, and cannot be told from repeats.')))"
)
