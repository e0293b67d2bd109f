"""What the plan of a user's own streaming DataFrame says of its query: its watermark, its aggregates, its topics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from impls.errors import UsageError
from impls.spark.columnnames import case_sensitive
from impls.spark.identity import readings_of
from impls.spark.plans import items, kind_of, nodes_of, watermarks_of, windows_of
from impls.spark.topics import Reading


def delay_of(frame: DataFrame) -> int | None:
    """Returns the delay of a plan's watermark, ms, None without one; raises UsageError where it has several."""
    delays = watermarks_of(frame)
    if len(delays) > 1:
        raise UsageError(f"The Spark query has {len(delays)} watermarks, and a query here has one.")
    return delays[0] if delays else None


def check_event_time(frame: DataFrame, delay: int | None, output_mode: str, form: Mapping[str, Any]) -> None:
    """Raises UsageError where a plan's watermark, windows or output mode are not those of a checkpoint's form."""
    own = form.get("watermarks")  # nobody has noted them of a query that was adopted and never started
    if own and delay is not None and own != [delay]:
        raise UsageError(
            f"The Spark query's watermark has a delay of {delay} ms, and the checkpoint's of {own[-1]} ms: release it "
            "with that, and change it then."
        )
    if form["values"] != "aggregates":
        return
    if (mode := form.get("output_mode", output_mode)) != output_mode:
        raise UsageError(f"The Spark query has the output mode {output_mode}, and the checkpoint's {mode}.")
    windows = form.get("windows")
    if windows is not None and (others := [one for one in windows_of(frame) if one not in windows]):
        had = " and ".join(map(_window, windows)) or "none"
        raise UsageError(f"The Spark query has windows of {_window(others[0])}, and the checkpoint's of {had}.")


def _window(window: Sequence[int]) -> str:
    size, slide, start = (f"{time / 1e6:g} s" for time in window)
    return f"{size} every {slide} from {start} on"


def aggregates_of(frame: DataFrame) -> list[tuple[str, str]]:
    """Returns function and column of each aggregate of a plan, "" for the column of count(*), in order.

    One that the query names twice comes once, as Spark keeps it.
    """
    fold, found = folding(frame), dict[tuple[str, str], tuple[str, str]]()
    for node in nodes_of(frame):
        for expression in items(node.aggregateExpressions()) if kind_of(node) == "Aggregate" else ():
            for function, column in _aggregates_in(expression):
                found.setdefault((function, fold(column)), (function, column))
    return list(found.values())


def folding(frame: DataFrame) -> Callable[[str], str]:
    """Returns what makes names equal that Spark takes for the same column."""
    return str if case_sensitive(frame) else str.lower


def _aggregates_in(expression: Any) -> list[tuple[str, str]]:
    children = items(expression.children())
    if kind_of(expression) != "AggregateExpression":
        return [each for child in children for each in _aggregates_in(child)]
    function = expression.aggregateFunction()
    columns = ", ".join(_column(child) for child in items(function.children()))
    more = " distinct" if expression.isDistinct() else " with a filter" if expression.filter().isDefined() else ""
    return [(f"{function.prettyName()}{more}", columns)]


def _column(expression: Any) -> str:
    """Returns a column's name, "" for the literal of count(*), the SQL of anything else."""
    kind = kind_of(expression)
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
