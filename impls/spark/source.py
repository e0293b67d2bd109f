"""The source of a streaming DataFrame: its topics, its offsets in Spark's logs, its watermark.

Spark notes the offsets of a batch when it ends. When a task fails, everything since then comes again, which for batches
of minutes is most of what workers have applied long ago. The driver knows how far that goes (`Coordinator.needed`). So
before Spark's query is started again the offsets that Spark goes on from are put forward: those at the end of the last
batch that it has committed, or those that its Kafka source noted at the very beginning. The number of the batch stays.
"""

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructField, StructType

from impls.autoscale.intervals import PartitionOffsets
from impls.controltopic.commands import Offsets
from impls.driver.arrivals import Consumed
from impls.driver.journal import replace_bytes
from impls.operators.base import quoted
from impls.protocol.eventtime import MAX_TIME, NO_TIME
from impls.spark.topics import Reading, Topics

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
        lines = _batch(location, epoch - 1)
    except OSError:
        return None
    return _least(lines)


def _least(lines: Iterable[bytes]) -> Offsets:
    """Returns the least offsets that lines of offsets have of each partition."""
    found: Offsets = {}
    for topic, parts in (pair for line in lines for pair in topics_of(line)):
        known = found.setdefault(topic, {})
        known.update({part: min(at, known.get(part, at)) for part, at in parts.items()})
    return found


def topics_of(line: bytes) -> Iterator[tuple[str, dict[int, int]]]:
    """Yields the topics of a Kafka source's offsets; other sources have none."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return
    for topic, parts in found.items() if isinstance(found, dict) else ():
        if _are_offsets(parts):
            yield topic, {int(part): at for part, at in parts.items()}


_NEEDED = "needed-offsets.json"


class InputLog:
    """keep() behind every epoch; put_forward() before Spark's query is started.

    Args:
        location: folder of Spark's own checkpoint of the query.
        topics: the numbers of its topics.
    """

    def __init__(self, location: str, topics: Topics):
        self._location, self._topics = Path(location), topics
        self._kept: dict[int, int] | None = None  # None before it was looked at

    def keep(self, needed: Mapping[int, int]) -> None:
        """Stores, by input partition, the first offset that is needed again, unless that is what is there.

        A driver that has just begun knows only partitions that had records since: what was stored of others stays.
        """
        if self._kept is None:
            stored = _needed_or_nothing(self._location)
            self._kept = {part: at for part, at in stored.items() if not self._topics.is_gone(part)}
        if needed and (now := {**self._kept, **needed}) != self._kept:
            self._kept = now
            raw = json.dumps({str(part): at for part, at in now.items()}).encode()
            replace_bytes(self._location / _NEEDED, raw)  # what is lost, or torn, lets more come again

    def begin_anew(self, topics: Collection[str]) -> None:
        """Lets the next batch begin at the first record of topics that were made anew.

        One that is noted and not committed comes again without records of these: what it had read of them is gone.
        """
        with contextlib.suppress(OSError):
            for path, first in [*self._begin(), *self._uncommitted()]:
                _put_forward(path, first, lambda _source, topic, _partition, at: 0 if topic in topics else at)

    def put_forward(self) -> None:
        """Lets the batch that comes again begin at the first record of each partition that is needed.

        What is not in the form of Kafka's offsets stays as it is: then more comes again than is needed.
        """
        try:
            needed, files = _needed(self._location), self._begin()
            for number, (path, first) in enumerate(files):
                later = partial(self._later, needed)
                _put_forward(path, first, later, source=number)  # several files have a source each, one has all
        except (OSError, ValueError):
            return

    def lines(self) -> list[bytes]:
        """Returns of each source, as Spark writes them, the offsets of the first records that are needed again.

        Raises OSError or ValueError where they are not noted.
        """
        needed, found = _needed(self._location), list[bytes]()
        for number, (path, first) in enumerate(self._begin()):
            found += _later_lines(path.read_bytes().split(b"\n")[first:], partial(self._later, needed), number)
        return found

    def _uncommitted(self) -> list[tuple[Path, int]]:
        """Returns the files with the ends of batches that are not committed, and the first line of offsets in each."""
        offsets, committed = self._location / "offsets", _last(self._location / "commits")
        after = -1 if committed is None else committed
        return [
            (path, _HEAD_LINES) for path in offsets.glob("[0-9]*") if path.name.isdecimal() and int(path.name) > after
        ]

    def _begin(self) -> list[tuple[Path, int]]:
        """Returns the files with the offsets at which the batch begins, and the first line of them in each."""
        last = _last(self._location / "commits")
        if last is not None:
            return [(self._location / "offsets" / str(last), _HEAD_LINES)]
        return [(path / "0", 1) for path in _sources(self._location)]

    def _later(self, needed: Mapping[int, int], source: int, topic: str, partition: int, at: int) -> int:
        readings = _readings_of(self._location, self._topics, source)
        return max(at, _first_needed(self._topics, readings, needed, topic, partition) or at)


def _last(folder: Path) -> int | None:
    """Returns the highest number of a batch in a folder of Spark's log, None for none."""
    return max((int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()), default=None)


def _needed(location: Path) -> dict[int, int]:
    """Reads what `keep` stored; raises OSError or ValueError where that is not there or torn."""
    found = json.loads((location / _NEEDED).read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"{_NEEDED} holds no offsets")  # noqa: TRY004 - as for text that is no JSON
    return {int(part): int(at) for part, at in found.items()}


def _needed_or_nothing(location: Path) -> dict[int, int]:
    try:
        return _needed(location)
    except (OSError, ValueError):
        return {}


def _sources(location: Path) -> list[Path]:
    """Returns the folders in which Spark's sources note where they began, in the order of its offsets."""
    return sorted((location / "sources").iterdir(), key=lambda path: int(path.name))


def _readings_of(location: Path, topics: Topics, source: int) -> Sequence[Reading]:
    """Returns the readings of one of Spark's sources: all of them where it is one for several, as in df.union(df)."""
    several = len(topics.readings)
    alone = several > 1 and len(_sources(location)) == several
    return topics.readings[source : source + 1] if alone else topics.readings


def _first_needed(
    topics: Topics, readings: Sequence[Reading], needed: Mapping[int, int], topic: str, partition: int
) -> int | None:
    """Returns the first offset of a topic's partition that any of some readings needs, None where one has not said."""
    found = [needed.get(one) for one in topics.input_partitions(topic, partition, readings)]
    return None if not found or None in found else min(at for at in found if at is not None)


def _put_forward(path: Path, first: int, later: Callable[[int, str, int, int], int], *, source: int = 0) -> None:
    """Writes the later offsets into a file's lines from the first on that are in the form of Kafka's."""
    lines = path.read_bytes().split(b"\n")
    new = [*lines[:first], *_later_lines(lines[first:], later, source)]
    if new != lines:
        replace_bytes(path, b"\n".join(new), fsync=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # of a file system with checksums


def _later_lines(lines: list[bytes], later: Callable[[int, str, int, int], int], source: int) -> list[bytes]:
    """Returns the lines of sources, the first of which has a number, with later offsets."""
    return [_line(line, partial(later, source + at)) for at, line in enumerate(lines)]


def _line(line: bytes, later: Callable[[str, int, int], int]) -> bytes:
    try:
        found: Any = json.loads(line)
    except ValueError:
        return line
    if not isinstance(found, dict) or not found or not all(map(_are_offsets, found.values())):
        return line
    offsets = {t: {part: later(t, int(part), at) for part, at in parts.items()} for t, parts in found.items()}
    return line if offsets == found else json.dumps(offsets, separators=(",", ":")).encode()


def _are_offsets(found: Any) -> bool:
    return isinstance(found, dict) and all(
        part.isdecimal() and type(at) is int and at >= 0 for part, at in found.items()
    )


def real_time_begin(location: Path, topics: Topics, since: Mapping[int, int] | None = None) -> Offsets | None:
    """Returns the offsets that the next epoch of real-time mode is not before; `since` has later ones.

    The runner notes them by input partition behind every epoch (`InputLog`), Spark's sources note their topics at the
    query's beginning, and a batch those that came since. None until both have, {} where topics are not told apart.
    Workers have all of a batch that Spark has committed, also what came behind the last note of its session.
    """
    if not topics.readings:
        return {}
    try:
        needed = _needed(location)
        needed |= {part: at for part, at in (since or {}).items() if at > needed.get(part, -1)}
        lines = [(folder / "0").read_bytes().rpartition(b"\n")[2] for folder in _sources(location)]
        committed = _least(_batch(location, _last(location / "commits")))
    except (OSError, ValueError):
        return None
    readers: dict[tuple[str, int], set[Reading]] = {}
    for source, line in [*enumerate(lines), *enumerate(_batch(location, _last(location / "offsets")))]:
        for place in ((topic, part) for topic, parts in topics_of(line) for part in parts):
            readers.setdefault(place, set()).update(_readings_of(location, topics, source))
    begin: Offsets = {}
    for (topic, part), readings in readers.items():
        noted = _first_needed(topics, sorted(readings, key=lambda one: one.place), needed, topic, part)
        known = [at for at in (noted, committed.get(topic, {}).get(part)) if at is not None]
        if known:
            begin.setdefault(topic, {})[part] = max(known)
    return begin or None


def _batch(location: Path, number: int | None) -> list[bytes]:
    """Returns the lines of offsets of a batch that Spark has noted, [] for None."""
    if number is None:
        return []
    return (location / "offsets" / str(number)).read_bytes().split(b"\n")[_HEAD_LINES:]


def read_offsets(location: Path) -> dict[tuple[str, int], int]:
    """Returns, by topic and partition, the offset behind what the last batch that Spark has noted has read."""
    read: dict[tuple[str, int], int] = {}
    for topic, parts in (pair for line in _batch(location, _last(location / "offsets")) for pair in topics_of(line)):
        for part, at in parts.items():
            read[topic, part] = max(at, read.get((topic, part), 0))
    return read


def read_partitions(location: Path) -> set[int]:
    """Returns the input partitions of which `InputLog` has noted how far they were read."""
    return set(_needed_or_nothing(location))


def read_until(location: str, topics: Topics, *, real_time: bool) -> Consumed:
    """Returns what reads in Spark's checkpoint how far a query has read.

    In real time they are the offsets behind an epoch when the next one has ended. Nothing while Spark has noted none.
    """
    place = Path(location)

    def consumed(epoch: int, since: Mapping[int, int] | None = None) -> PartitionOffsets:
        found = real_time_begin(place, topics, since) if real_time else epoch_begin(place, epoch + 1)
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
    """Returns a column's timestamp, µs, as SQL; that of a record without one is `NO_TIME`, later ones are MAX_TIME."""
    column = quoted(name)
    inside = f"least(greatest(unix_micros({column}), {NO_TIME + 1}L), {MAX_TIME}L)"
    return f"if({column} is null, {NO_TIME}L, {inside})"
