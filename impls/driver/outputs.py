"""What readers of a query's results depend on: how many partitions a topic has."""

import json
from pathlib import Path
from typing import Any

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError

_FILE = "outputs.json"


def keep_outputs(own: Path, topic: str, partitions: int, *, begins: bool, fsync: bool = False) -> None:
    """Notes with how many partitions a query sends results to a topic: repeats are found partition by partition.

    Args:
        own: this project's part of the checkpoint.
        topic: the results topic.
        partitions: its number of partitions, as `Output` has it.
        begins: no epoch was planned before, so nothing was sent: what an earlier start has noted does not count.
        fsync: whether the note must survive the host's failure.

    Raises:
        UsageError: the topic had another number: what is sent again would come to other partitions, and count twice.
        StateError: the note cannot be written.
    """
    path = own / _FILE
    try:
        known: dict[str, Any] = {"partitions": {}}
        if path.exists() and not begins:
            known = json.loads(path.read_bytes())
        topics = dict(known["partitions"])
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
    before = topics.setdefault(topic, partitions)
    if before != partitions:
        raise UsageError(
            f"This query has sent results to {before} partitions of {topic}, not {partitions}: readers would take what "
            f"is sent again for new. Give Output partitions={before}, or another topic."
        )
    replace_bytes(path, json.dumps({"partitions": topics}).encode(), fsync=fsync)
