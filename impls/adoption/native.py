"""The logs of a native query's checkpoint: its last committed batch, and what it was going to read next.

Spark writes a batch's offsets before it runs the batch, and commits it after its state and its results. So the last
committed batch is the one whose state and offsets belong together; a batch that is planned behind it may have written a
part of its results, and its records are processed anew.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from impls.controltopic.commands import Offsets
from impls.durability.files import Files
from impls.errors import UsageError
from impls.spark.source import topics_of

_OFFSETS, _COMMITS = "offsets", "commits"
_NO_OFFSETS = b"-"  # of a source that has had no data yet
_AGGREGATION = "spark.sql.streaming.aggregation.stateFormatVersion"


@dataclass(frozen=True)
class NativeLog:
    """A native query between two batches.

    Attributes:
        batch: the last one that was committed.
        planned: batches that are planned behind it and not committed; 0 or 1.
        head: of the batch's file in the offset log: watermark, time and the settings that Spark keeps.
        sources: of each source the offsets behind the batch, as Spark writes them.
        before: the same of the batch before; None for the first batch, or where Spark has deleted it.
        watermark_ms: the watermark for the next batch; 0 without one.
        state_ids: whether files of its state have ids, which the commit log names (its version 2).
    """

    batch: int
    planned: int
    head: dict[str, Any]
    sources: tuple[bytes, ...]
    before: tuple[bytes, ...] | None
    watermark_ms: int
    state_ids: bool = False

    @property
    def offsets(self) -> Offsets:
        """The next offset of each partition of each topic; of a topic read twice the lower one."""
        read: Offsets = {}
        for topic, parts in (pair for line in self.sources for pair in topics_of(line)):
            known = read.setdefault(topic, {})
            known.update({part: min(at, known.get(part, at)) for part, at in parts.items()})
        return read

    @property
    def aggregation_format(self) -> str:
        """Version of the form in which Spark keeps the state of aggregates."""
        return str(self.head.get("conf", {}).get(_AGGREGATION, "1"))  # Spark 2.3 did not say


def read_log(files: Files) -> NativeLog:
    """Reads the logs of a Spark checkpoint.

    Raises:
        UsageError: it is none, it has no committed batch, a file of its logs cannot be read, or it has a source that is
            not Kafka.
    """
    planned, committed = _batches(files, _OFFSETS), _batches(files, _COMMITS)
    if not planned:
        raise UsageError(f"The folder {files.place} is no checkpoint of a Spark streaming query: it has no offset log.")
    if not committed:
        raise UsageError(
            f"The query of {files.place} has committed no batch: there is nothing to adopt, start a new query instead."
        )
    batch = max(committed)
    head, sources = _offsets(files, batch)
    _check_kafka(files, sources)
    before = _offsets(files, batch - 1)[1] if batch - 1 in planned else None
    late = sum(number > batch for number in planned)
    watermark_ms, state_ids = _committed(files, batch)
    return NativeLog(batch, late, head, sources, before, watermark_ms, state_ids)


def _batches(files: Files, folder: str) -> set[int]:
    names = (name.rpartition("/")[2] for name, _ in files.names(folder))
    return {int(name) for name in names if name.isdecimal()}


def _offsets(files: Files, batch: int) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Returns a batch's settings and its sources' offsets."""
    version, *lines = _lines(files, f"{_OFFSETS}/{batch}")
    if version != b"v1":
        raise UsageError(
            f"The offset log of {files.place} has format {version.decode(errors='replace')}; this version reads v1 "
            "(spark.sql.streaming.queryEvolution.enableSourceEvolution=false)."
        )
    try:
        return dict(json.loads(lines[0])), tuple(lines[1:])
    except (ValueError, IndexError, TypeError) as error:
        raise UsageError(f"The file {files.path(f'{_OFFSETS}/{batch}')} is damaged.") from error


def _lines(files: Files, name: str) -> list[bytes]:
    raw = files.read(name)
    if raw is None:
        raise UsageError(f"The file {files.path(name)} is missing: the checkpoint is not whole.")
    return [line.strip() for line in raw.split(b"\n")]


def _check_kafka(files: Files, sources: tuple[bytes, ...]) -> None:
    for number, line in enumerate(sources):
        if line == _NO_OFFSETS:
            raise UsageError(
                f"Source {number} of {files.place} has had no data yet, so it has no offsets to go on from."
            )
        if not dict(topics_of(line)):
            raise UsageError(
                f"Source {number} of {files.place} is not Kafka (its offsets are "
                f"{line[:60].decode(errors='replace')}): only queries that read Kafka can be adopted."
            )
    if not sources:
        raise UsageError(f"The query of {files.place} has no source.")


def _committed(files: Files, batch: int) -> tuple[int, bool]:
    """Returns what a batch's commit says: the next batch's watermark, ms, and whether files of state have ids."""
    name = f"{_COMMITS}/{batch}"
    try:
        found = json.loads(b"".join(_lines(files, name)[1:]))
        return int(found.get("nextBatchWatermarkMs", 0)), bool(found.get("stateUniqueIds"))
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"The file {files.path(name)} is damaged.") from error


_ASK_S = 15.0
Ranges = dict[str, dict[int, tuple[int, int]]]


def check_topics(settings: Mapping[str, Any], offsets: Offsets) -> None:
    """Raises UsageError when the broker does not answer, or does not have the records from the offsets on.

    Args:
        settings: librdkafka's, `bootstrap.servers` among them.
        offsets: of each topic and partition the next one to read.
    """
    quiet = {"log_level": 0, "error_cb": lambda _error: None}
    try:
        ranges = _ranges(AdminClient({**settings, **quiet}), offsets)
    except KafkaException as error:
        address = settings["bootstrap.servers"]
        raise UsageError(
            f"The broker {address} of the query's input does not answer: {error.args[0].str()}."
        ) from error
    check_ranges(offsets, ranges)


def _ranges(admin: AdminClient, offsets: Offsets) -> Ranges:
    """Returns of the partitions that the broker has the first offset it has, and the one behind the last."""
    known = admin.list_topics(timeout=_ASK_S).topics
    places = [
        TopicPartition(topic, part) for topic in offsets.keys() & known.keys() for part in known[topic].partitions
    ]
    ranges: Ranges = {topic: {} for topic in offsets.keys() & known.keys()}
    ends = [admin.list_offsets(dict.fromkeys(places, spec)) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
    for place in places:
        first, behind = (int(asked[place].result(_ASK_S).offset) for asked in ends)
        ranges[place.topic][place.partition] = (first, behind)
    return ranges


def check_ranges(offsets: Offsets, ranges: Ranges) -> None:
    """Raises UsageError unless each offset is within what the broker has: (first offset, offset behind the last)."""
    for topic, parts in sorted(offsets.items()):
        if topic not in ranges:
            raise UsageError(f"The topic {topic}, which the query reads, is not there: it has been deleted or renamed.")
        for part, at in sorted(parts.items()):
            where = f"partition {part} of the topic {topic}"
            if part not in ranges[topic]:
                raise UsageError(f"The query reads {where}, which is not there: the topic has been made anew.")
            first, behind = ranges[topic][part]
            if at > behind:
                raise UsageError(
                    f"The query has read {where} up to offset {at}, but it ends at {behind}: the topic was made anew."
                )
            if at < first:
                raise UsageError(
                    f"The query goes on at offset {at} of {where}, but the broker has deleted what is before {first}."
                )
