"""What the plan of a streaming DataFrame says of it: its nodes, its watermarks and its windows."""

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

_SHIFTED = re.compile(r"- (-?\d+)L\) % (\d+)L\)")  # of Spark's rule for windows: time less start, by the slide
_SIZED = re.compile(r" END\) - -?\d+L\) \+ (\d+)L\)")  # the end of a window: its begin and the size


def items(sequence: Any) -> list[Any]:
    """Returns the items of a sequence of Scala."""
    return [sequence.apply(place) for place in range(sequence.size())]


def kind_of(node: Any) -> str:
    """Returns the class of a plan's node, or of an expression."""
    return str(node.getClass().getSimpleName())


def nodes_of(df: DataFrame) -> Iterator[Any]:
    """Yields the nodes of a DataFrame's analysed plan, each before its children."""
    left = [df._jdf.queryExecution().analyzed()]
    while left:
        node = left.pop()
        left += items(node.children())
        yield node


def times_of(df: DataFrame) -> dict[str, Any]:
    """Returns what is kept of a query's event time beside the form of its state, as JSON values."""
    return {"watermarks": watermarks_of(df), "windows": windows_of(df)}


def watermarks_of(df: DataFrame) -> list[int]:
    """Returns the delays, ms, of the watermarks of a plan, sorted."""
    marks: Any = df.sparkSession._jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark  # type: ignore[union-attr]
    return sorted(int(marks.getDelayMs(node.delay())) for node in nodes_of(df) if kind_of(node) == "EventTimeWatermark")


def windows_of(df: DataFrame) -> list[list[int]]:
    """Returns [size, slide, start], µs, of each window that `pyspark.sql.functions.window` makes in a plan, sorted."""
    found = set[tuple[int, int, int]]()
    for node in nodes_of(df):
        for expression in items(node.expressions()) if kind_of(node) in {"Project", "Expand"} else ():
            text = str(expression.sql())
            sizes = {int(size) for size in _SIZED.findall(text)}
            shifts = {(int(slide), int(start)) for start, slide in _SHIFTED.findall(text)}
            found |= {(size, slide, start) for size in sizes for slide, start in shifts}
    return [list(one) for one in sorted(found)]
