"""What Spark tells of its own query: finished epochs, and whether one is under way."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["EpochListener", "found_nothing", "idle_polls", "newest_epoch", "state_bytes"]

_WAITING, _ASKING = "Waiting for data to arrive", "Getting offsets from"


class EpochListener(StreamingQueryListener):
    """Hands every finished epoch on; Spark tells of idle triggers too, which are none."""

    def __init__(self, progress: Callable[[int, int, Any], None]):
        self._hand_on = progress

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Hands an epoch on."""
        progress = event.progress
        if "addBatch" in progress.durationMs:
            begun = datetime.fromisoformat(progress.timestamp)
            self._hand_on(progress.batchId, round(begun.timestamp() * 1e6), progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""


def idle_polls(before: int, message: str) -> int:
    """Returns how many polls in a row have found no epoch under way, with the status message of one more.

    Spark waits and asks for offsets in turns, and on a busy machine asks for longer than it waits. Only waiting tells
    that there was nothing to do, so a row begins with it.

    >>> idle_polls(0, "Getting offsets from KafkaV2[...]"), idle_polls(0, "Waiting for data to arrive")
    (0, 1)
    >>> idle_polls(1, "Getting offsets from KafkaV2[...]"), idle_polls(2, "Processing new data")
    (2, 0)
    """
    idle = message == _WAITING or (before > 0 and message.startswith(_ASKING))
    return before + 1 if idle else 0


def found_nothing(message: str, *, committed: bool) -> bool:
    """Returns whether a restarted query waits without having run an epoch.

    The progress of one that was run ends the restart; Spark tells of it later than it says that it waits again.

    Args:
        message: the query's status.
        committed: whether an epoch was committed since the restart.

    >>> [found_nothing("Waiting for data to arrive", committed=committed) for committed in (False, True)]
    [True, False]
    """
    return message == _WAITING and not committed


def newest_epoch(folder: Path) -> int:
    """Returns the highest number that names a file of one of Spark's logs, -1 where there is none."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def state_bytes(progress: Any) -> int:
    """Returns the bytes of RocksDB's files of all state, as an epoch's progress tells them."""
    metrics: list[Mapping[str, Any]] = [operator.customMetrics for operator in progress.stateOperators]
    return sum(int(found.get("rocksdbSstFileSize", 0)) for found in metrics)
