"""The Kafka source of a streaming DataFrame: the settings by which another client reaches its broker."""

from pyspark.sql import DataFrame

from impls.worker.output import Output

__all__ = ["broker_settings"]

_KAFKA = "kafka"
_BOOTSTRAP = "kafka.bootstrap.servers"


def broker_settings(df: DataFrame, results: Output) -> dict[str, str] | None:
    """Returns librdkafka's settings for the broker of a DataFrame's Kafka source, None if it has none, or several.

    What a client needs besides the address, such as a password, it takes from the options of the results' topic.
    """
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    streaming = [leaf for leaf in (leaves.apply(place) for place in range(leaves.size())) if leaf.isStreaming()]
    found = {str(leaf.extraOptions().get(_BOOTSTRAP)) for leaf in streaming if str(leaf.sourceName()) == _KAFKA}
    return {**results.options, "bootstrap.servers": found.pop()} if len(found) == 1 else None
