"""The source of a streaming DataFrame: its topics, its offsets in Spark's logs, its watermark.

Spark notes the offsets of a batch when it ends. When a task fails, everything since then comes again, which for batches
of minutes is most of what workers have applied long ago. The driver knows how far that goes (`Coordinator.needed`). So
before Spark's query is started again the offsets that Spark goes on from are put forward: those at the end of the last
batch that it has committed, or those that its Kafka source noted at the very beginning. The number of the batch stays.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from impls.autoscale.intervals import PartitionOffsets
from impls.controltopic.commands import Offsets
from impls.driver.journal import replace_bytes
from impls.protocol.eventtime import NO_TIME
from impls.worker.results import Output
from impls.worker.sinks import Sink

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


def read_until(location: str, *, real_time: bool) -> Callable[[int], PartitionOffsets]:
    """Returns what reads, in Spark's checkpoint, the offsets behind what an epoch and all before it have read.

    In real time they are those behind a tick when the next one has ended. Nothing while Spark has noted none.
    """
    place = Path(location)

    def consumed(epoch: int) -> PartitionOffsets:
        found = tick_begin(place) if real_time else epoch_begin(place, epoch + 1)
        return {(topic, part): at for topic, parts in (found or {}).items() for part, at in parts.items()}

    return consumed


_DELAY = "spark.watermarkDelayMs"  # in the metadata of a column with a watermark, and of windows of it


def with_watermark(schema: StructType) -> list[StructField]:
    """Returns the columns that have a watermark, windows of such a column among them."""
    return [field for field in schema.fields if _DELAY in field.metadata]


def delay_ms(column: StructField) -> int:
    """Returns the delay of a column's watermark, ms."""
    return int(column.metadata[_DELAY])


def event_time_sql(name: str) -> str:
    """Returns a column's timestamp, µs, as SQL; that of a record without one is `NO_TIME`."""
    return f"coalesce(unix_micros(`{name}`), {NO_TIME}L)"
