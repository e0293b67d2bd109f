"""The Kafka source of a streaming DataFrame: how another client reaches its broker, and how far it was read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from impls.autoscale.intervals import Offsets
from impls.spark.offsetlog import epoch_begin
from impls.spark.realtime.inputlog import tick_begin
from impls.worker.output import Output
from impls.worker.sinks import Sink

__all__ = ["broker_settings", "read_until", "streaming_sources"]

_KAFKA = "kafka"
_BOOTSTRAP = "kafka.bootstrap.servers"


def streaming_sources(df: DataFrame) -> list[Any]:
    """Returns the JVM's nodes of a DataFrame's plan that read a streaming source."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in (leaves.apply(place) for place in range(leaves.size())) if leaf.isStreaming()]


def broker_settings(df: DataFrame, results: Sink) -> dict[str, str] | None:
    """Returns librdkafka's settings for the broker of a DataFrame's Kafka source, None if it has none, or several.

    What a client needs besides the address, such as a password, it takes from the options of the results' topic.
    """
    sources = streaming_sources(df)
    found = {str(leaf.extraOptions().get(_BOOTSTRAP)) for leaf in sources if str(leaf.sourceName()) == _KAFKA}
    more = results.options if isinstance(results, Output) else {}
    return {**more, "bootstrap.servers": found.pop()} if len(found) == 1 else None


def read_until(location: str, *, real_time: bool) -> Callable[[int], Offsets]:
    """Returns what reads, in Spark's checkpoint, the offsets behind what an epoch and all before it have read.

    In real time they are those behind a tick when the next one has ended. Nothing while Spark has noted none.
    """
    place = Path(location)

    def consumed(epoch: int) -> Offsets:
        found = tick_begin(place) if real_time else epoch_begin(place, epoch + 1)
        return {(topic, part): at for topic, parts in (found or {}).items() for part, at in parts.items()}

    return consumed
