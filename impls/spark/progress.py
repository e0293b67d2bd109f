"""The figures of an epoch as observed metrics of Spark's query, for listeners and the query's progress.

What the driver knows of an epoch is in no row of the stream. So a branch of the query without rows is observed
(`DataFrame.observe`), and the driver adds one row to that epoch's metrics when the epoch is done. Spark then reports
them as it reports any observed metrics. The branch has no partitions, so nothing is paid for a record.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from impls.protocol.jsontext import to_text
from impls.spark.compiled import new_object

__all__ = ["METRICS", "OBSERVED", "ProgressMetrics", "observed"]

OBSERVED = "rescale"
METRICS = (
    "records", "results", "queued", "misplaced", "migrations", "moved_bins", "moved_bytes", "planned_bins",
    "planned_bytes", "rebuilt", "state_bytes", "workers",
)  # fmt: skip
_FIGURES = "rescale_figures"
_SOURCE = Path(__file__).with_name("Figures.java")
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
        self._adder: Any = None

    def tell(self, query: StreamingQuery) -> None:
        """Adds the figures to the epoch that a query runs."""
        if not self._works:
            return
        figures = self._figures()
        text = to_text({name: figures.get(name) for name in METRICS}).decode()
        try:
            self._adder = self._adder or new_object(self._spark, _SOURCE)
            self._adder.add(query._jsq, OBSERVED, text)
        except (Py4JError, TypeError, AttributeError) as error:
            self._works = False
            _LOG.warning("Spark's progress is told no figures of this query: %s", " ".join(str(error).splitlines()[:2]))
