"""NEXMark's events for Spark's own API: their kind read from their text, event time and its watermark."""

import functools
import operator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

__all__ = ["DELAY_MS", "events"]

DELAY_MS = 2_000
_FIELDS = (
    "id bigint, name string, city string, state string, reserve bigint, expires bigint, seller bigint, "
    "category bigint, auction bigint, bidder bigint, price bigint, dateTime bigint"
)


def events(raw: DataFrame, *kinds: str) -> DataFrame:
    """Returns the events of some kinds ("person", "auction", "bid"), with `at` as event time.

    The watermark goes by these events alone, `DELAY_MS` behind the latest. Fields that an event has not are NULL.
    """
    text = F.col("value").cast("string")
    bid, auction = text.contains('"bidder":'), text.contains('"seller":')
    conditions = {"bid": bid, "auction": auction & ~bid, "person": ~bid & ~auction}
    chosen = functools.reduce(operator.or_, [conditions[kind] for kind in kinds])
    parsed = raw.where(chosen).select(F.from_json(text, _FIELDS).alias("e")).select("e.*")
    return parsed.withColumn("at", F.timestamp_millis("dateTime")).withWatermark("at", f"{DELAY_MS} milliseconds")
