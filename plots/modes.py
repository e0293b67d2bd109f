"""What runs are called by the mode in which Spark ran their query: micro-batches, or real time."""

from collections.abc import Sequence

REAL_TIME = "real-time"
IN_REAL_TIME = ", real time"  # behind the name of a mechanism
_BASELINES = ("native-", "flink-", "kafka-streams-")  # each has one mode


def titles(mechanism: str, modes: Sequence[str]) -> list[str]:
    """Returns what a mechanism's runs are called in an experiment's modes.

    >>> titles("meces", ["micro-batch", "real-time"]), titles("native-repartition", ["real-time"])
    (['meces', 'meces, real time'], ['native-repartition'])
    """
    if REAL_TIME not in modes or mechanism.startswith(_BASELINES):
        return [mechanism]
    return [f"{mechanism}{IN_REAL_TIME}" if mode == REAL_TIME else mechanism for mode in modes]
