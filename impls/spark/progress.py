"""The figures of an epoch as observed metrics of Spark's query, for listeners and the query's progress.

What the driver knows of an epoch is in no row of the stream. So a branch of the query without rows is observed
(`DataFrame.observe`), and the driver adds one row to that epoch's metrics when the epoch is done. Spark then reports
them as it reports any observed metrics. The branch has no partitions, so nothing is paid for a record.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from impls.protocol.jsontext import to_text

__all__ = ["METRICS", "OBSERVED", "ProgressMetrics", "observed"]

OBSERVED = "rescale"
METRICS = (
    "records", "results", "queued", "misplaced", "migrations", "moved_bins", "moved_bytes", "planned_bins",
    "planned_bytes", "rebuilt", "state_bytes", "workers",
)  # fmt: skip
_FIGURES = "rescale_figures"
_NODE = "CollectMetrics"
_LOG = logging.getLogger(__package__)


def observed(nothing: DataFrame) -> DataFrame:
    """Returns a streaming DataFrame without rows whose observed metrics are `METRICS`, longs, under `OBSERVED`."""
    figures = F.max(_FIGURES)
    metrics = [F.get_json_object(figures, f"$.{name}").cast("long").alias(name) for name in METRICS]
    return nothing.withColumn(_FIGURES, F.lit(None).cast("string")).observe(OBSERVED, *metrics)


class ProgressMetrics:
    """tell() at the end of each epoch puts figures into its observed metrics.

    Where a version of Spark has another inside, the query goes on without them, and one warning says so.

    Args:
        spark: the query's session.
        figures: returns the figures, see `impls.driver.figures.Figures.counts`.
    """

    def __init__(self, spark: SparkSession, figures: Callable[[], Mapping[str, Any]]):
        self._spark, self._figures, self._works = spark, figures, True
        self._classes: tuple[Any, Any, Any] | None = None
        self._paths: list[tuple[int, ...]] = []

    def tell(self, query: StreamingQuery) -> None:
        """Adds the figures to the epoch that a query runs."""
        if not self._works:
            return
        figures = self._figures()
        try:
            self._add(query, to_text({name: figures.get(name) for name in METRICS}).decode())
        except (Py4JError, TypeError, AttributeError) as error:
            self._works = False
            _LOG.warning("Spark's progress is told no figures of this query: %s", str(error).splitlines()[0])

    def _add(self, query: StreamingQuery, text: str) -> None:
        """Adds a row with a text in its last column to the observed metrics of the epoch under way."""
        if self._classes is None:
            self._classes = self._found()
        row_of, string_of, accumulators = self._classes
        node = self._node(query._jsq.streamingQuery().lastExecution().executedPlan())
        width = node.child().output().size()
        row = row_of(width)
        row.update(width - 1, string_of.fromString(text))
        accumulators.get(node.accumulatorId()).get().add(row)

    def _found(self) -> tuple[Any, Any, Any]:
        """Returns Spark's classes that are needed: to name one asks the JVM for each part of its name."""
        spark: Any = self._spark._jvm.org.apache.spark  # type: ignore[union-attr]
        row = spark.sql.catalyst.expressions.GenericInternalRow
        return row, spark.unsafe.types.UTF8String, spark.util.AccumulatorContext

    def _node(self, plan: Any) -> Any:
        """Returns the node of an epoch's plan that observes what `observed` has made; it is where one was before.

        A plan has one form with new records and another without.
        """
        for path in self._paths:
            if (node := _at(plan, path)) is not None:
                return node
        path_found = _path_in(plan)
        if path_found is None:
            raise TypeError(f"the plan of the epoch has no {_NODE}.")
        self._paths.append(path_found)
        return _at(plan, path_found)


def _at(plan: Any, path: tuple[int, ...]) -> Any:
    """Returns the node at the end of a path through the children, None where that is none that observes."""
    node = plan
    for place in path:
        children = node.children()
        if place >= children.size():
            return None
        node = children.apply(place)
    return node if _observes(node) else None


def _observes(node: Any) -> bool:
    return bool(node.nodeName() == _NODE and node.name() == OBSERVED)


def _path_in(plan: Any) -> tuple[int, ...] | None:
    """Returns which child to take of each node on the way to the one that observes, None if there is none."""
    if _observes(plan):
        return ()
    children = plan.children()
    for place in reversed(range(children.size())):  # it is in the last one
        path = _path_in(children.apply(place))
        if path is not None:
            return (place, *path)
    return None
