"""Where a batch begins that comes again: behind what no worker needs, and not where it began the first time.

Spark notes the offsets of a batch when it ends. When a task fails, everything since then comes again, which for batches
of minutes is most of what workers have applied long ago. The driver knows how far that goes (`Coordinator.needed`). So
before Spark's query is started again the offsets that Spark goes on from are put forward: those at the end of the last
batch that it has committed, or those that its Kafka source noted at the very beginning. The number of the batch stays.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.controltopic.commands import Offsets
from impls.driver.journal import replace_bytes
from impls.spark.offsetlog import topics_of

__all__ = ["InputLog", "tick_begin"]

_NEEDED = "needed-offsets.json"


class InputLog:
    """keep() behind every tick; put_forward() before Spark's query is started.

    Args:
        location: folder of Spark's own checkpoint of the query.
    """

    def __init__(self, location: str):
        self._location = Path(location)
        self._kept: dict[int, int] = {}

    def keep(self, needed: Mapping[int, int]) -> None:
        """Stores, by partition, the first offset that is needed again; what is there already is not written again."""
        if needed and needed != self._kept:
            self._kept = dict(needed)
            raw = json.dumps({str(part): at for part, at in needed.items()}).encode()
            replace_bytes(self._location / _NEEDED, raw)  # what is lost, or torn, lets more come again

    def put_forward(self) -> None:
        """Lets the batch that comes again begin at the first record that is needed.

        What is not in the form of one Kafka topic's offsets stays as it is: then more comes again than is needed.
        """
        try:
            needed = json.loads((self._location / _NEEDED).read_bytes())
            path = self._begin()
            head, _, last = path.read_bytes().rpartition(b"\n")
            offsets = _forward(json.loads(last), needed)
        except (OSError, ValueError):
            return
        if offsets is not None:
            replace_bytes(path, head + b"\n" + json.dumps(offsets, separators=(",", ":")).encode(), fsync=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # of a file system with checksums

    def _begin(self) -> Path:
        """Returns the file with the offsets at which the batch begins."""
        commits = (path.name for path in (self._location / "commits").glob("[0-9]*"))
        last = max((int(name) for name in commits if name.isdecimal()), default=None)
        return self._location / ("sources/0/0" if last is None else f"offsets/{last}")


def tick_begin(location: Path) -> Offsets | None:
    """Returns the offsets that the next tick of real-time mode is not before, {} if there are several topics.

    The runner notes them by partition behind every tick (`InputLog`), Spark's source notes the
    topic at the query's beginning. None until both have.
    """
    try:
        needed = json.loads((location / _NEEDED).read_bytes())
        sources = [(folder / "0").read_bytes() for folder in (location / "sources").iterdir()]
    except (OSError, ValueError):
        return None
    topics = [topic for source in sources for topic, _ in topics_of(source.rpartition(b"\n")[2])]
    return {topics[0]: {int(part): at for part, at in needed.items()}} if len(topics) == 1 else {}


def _forward(found: Any, needed: Any) -> dict[str, dict[str, int]] | None:
    """Returns offsets of a topic with what is needed, None if it is another form or nothing is to be changed."""
    if not isinstance(found, dict) or len(found) != 1:
        return None
    ((topic, offsets),) = found.items()
    if not _are_offsets(offsets) or not _are_offsets(needed):
        return None
    later = {part: max(at, needed.get(part, at)) for part, at in offsets.items()}
    return None if later == offsets else {topic: later}


def _are_offsets(found: Any) -> bool:
    return isinstance(found, dict) and all(type(at) is int and at >= 0 for at in found.values())
