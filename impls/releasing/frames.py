"""What the plan of a user's own streaming DataFrame says of its query: its watermark, its aggregates, its topics."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame

from impls.errors import UsageError
from impls.spark.carrying import items
from impls.spark.identity import readings_of
from impls.spark.topics import Reading


def delay_of(frame: DataFrame) -> int | None:
    """Returns the delay of a plan's watermark, ms, None without one; raises UsageError where it has several."""
    delays = [node.delay() for node in _nodes(frame) if _kind(node) == "EventTimeWatermark"]
    if len(delays) > 1:
        raise UsageError(f"The Spark query has {len(delays)} watermarks, and a query here has one.")
    marks: Any = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark  # type: ignore[union-attr]
    return int(marks.getDelayMs(delays[0])) if delays else None


def aggregates_of(frame: DataFrame) -> list[tuple[str, str]]:
    """Returns function and column of each aggregate of a plan, "" for the column of count(*), in order.

    One that the query names twice comes once, as Spark keeps it.
    """
    found: dict[tuple[str, str], None] = {}
    for node in _nodes(frame):
        for expression in items(node.aggregateExpressions()) if _kind(node) == "Aggregate" else ():
            found |= dict.fromkeys(_aggregates_in(expression))
    return list(found)


def _aggregates_in(expression: Any) -> list[tuple[str, str]]:
    children = items(expression.children())
    if _kind(expression) != "AggregateExpression":
        return [each for child in children for each in _aggregates_in(child)]
    function = expression.aggregateFunction()
    columns = ", ".join(_column(child) for child in items(function.children()))
    more = " distinct" if expression.isDistinct() else " with a filter" if expression.filter().isDefined() else ""
    return [(f"{function.prettyName()}{more}", columns)]


def _column(expression: Any) -> str:
    """Returns a column's name, "" for the literal of count(*), the SQL of anything else."""
    kind = _kind(expression)
    if kind == "AttributeReference":
        return str(expression.name())
    return "" if kind == "Literal" else str(expression.sql())


def readings_for(frame: DataFrame) -> list[Reading]:
    """Returns what the sources of a plan read; raises UsageError unless all of them are Kafka."""
    if readings := readings_of(frame):
        return readings
    raise UsageError("The Spark query does not read Kafka, or not Kafka alone.")


def check_topics(readings: Sequence[Reading], read: Sequence[set[str]]) -> None:
    """Raises UsageError unless the sources of a plan read the topics that each source of another has read."""
    for topic in sorted(set[str]().union(*read)):
        if not any(one.may_read(topic) for one in readings):
            raise UsageError(f"The checkpoint's query has read the topic {topic}, and the Spark query does not.")
    for place, (one, topics) in enumerate(zip(readings, read, strict=False)):  # Spark takes equal sources for one
        if len(readings) == len(read) and not all(one.may_read(topic) for topic in topics):
            raise UsageError(
                f"Source {place} of the checkpoint's query has read {', '.join(sorted(topics))}, and that of the Spark "
                "query does not: name the sources in the order in which they were."
            )


def _nodes(frame: DataFrame) -> Iterator[Any]:
    left = [frame._jdf.queryExecution().analyzed()]
    while left:
        node = left.pop()
        left += items(node.children())
        yield node


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
