"""What Spark notes of a query's offsets: where its epochs begin in the topics of the input."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from impls.controltopic.commands import Offsets

__all__ = ["epoch_begin", "topics_of"]

_HEAD_LINES = 2  # of a file of Spark's offset log: its version, and the batch's settings


def epoch_begin(location: Path, epoch: int) -> Offsets | None:
    """Returns the offsets at which an epoch of micro-batches begins, {} if the input is no Kafka topic.

    Spark notes an epoch's end before it runs the epoch, and the next one begins there. A topic that is read twice is as
    far as the slower reader. None while nothing is noted.

    Args:
        location: folder of Spark's own checkpoint.
        epoch: its number, at least 1.
    """
    try:
        lines = (location / "offsets" / str(epoch - 1)).read_bytes().split(b"\n")[_HEAD_LINES:]
    except OSError:
        return None
    begin: Offsets = {}
    for topic, parts in (pair for line in lines for pair in topics_of(line)):
        known = begin.setdefault(topic, {})
        known.update({part: min(at, known.get(part, at)) for part, at in parts.items()})
    return begin


def topics_of(line: bytes) -> Iterator[tuple[str, dict[int, int]]]:
    """Yields the topics of a Kafka source's offsets; other sources have none."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return
    for topic, parts in found.items() if isinstance(found, dict) else ():
        if isinstance(parts, dict):
            yield topic, {int(part): at for part, at in parts.items()}
