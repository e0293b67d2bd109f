"""The results topics of a query: how many partitions each had, since repeats are found partition by partition."""

import json
from pathlib import Path

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError

_FILE = "outputs.json"


def keep_partitions(own: Path, topic: str, partitions: int, *, fsync: bool = False) -> None:
    """Notes with how many partitions a query sends results to a topic.

    Args:
        own: this project's part of the checkpoint.
        topic: the results topic.
        partitions: its number of partitions, as `Output` has it.
        fsync: whether the note must survive the host's failure.

    Raises:
        UsageError: the topic had another number: what is sent again would come to other partitions, and count twice.
        StateError: the note cannot be written.
    """
    path = own / _FILE
    try:
        known = dict(json.loads(path.read_bytes())) if path.exists() else {}
    except (ValueError, TypeError) as error:
        raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
    before = known.get(topic, partitions)
    if before != partitions:
        raise UsageError(
            f"This query has sent results to {before} partitions of {topic}, not {partitions}: readers would take what "
            f"is sent again for new. Give Output partitions={before}, or another topic."
        )
    if topic not in known:
        replace_bytes(path, json.dumps({**known, topic: partitions}).encode(), fsync=fsync)
