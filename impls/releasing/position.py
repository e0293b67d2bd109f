"""Where a stopped query stands: its last epoch, the offsets behind it, and its watermark, as a Spark query goes on."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from impls.driver.base import Journals, read_base
from impls.errors import UsageError
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EventClock, EventTime, whole_ms
from impls.protocol.mechanism import Mechanism
from impls.reading.stored import StoredQuery
from impls.spark.input import makes_rows
from impls.spark.source import InputLog, topics_of
from impls.spark.topics import Reading, Topics

_FIRST = 2  # line of a file of the offset log with the offsets of the first source


@dataclass(frozen=True)
class Until:
    """How far a Spark query has read when it goes on from real time.

    Attributes:
        offsets: by input partition the next offset.
        topics: those of the query.
    """

    offsets: Mapping[int, int]
    topics: Topics

    def is_passed(self, behind: Mapping[int, int]) -> bool:
        """Returns whether bins have applied more; `behind` has by input partition the offset behind the last record.

        A partition that is not known here the Spark query reads from its beginning.
        """
        known = {part: at for part, at in behind.items() if not self.topics.is_gone(part)}
        return any(at > self.offsets.get(part, 0) for part, at in known.items())


@dataclass(frozen=True)
class Position:
    """What a Spark query goes on from.

    Attributes:
        epoch: the last one.
        lines: of each source the offsets behind it, as Spark writes them.
        before_ms, watermark_ms: watermark of the epoch and of the next one, 0 without one.
        now_ms: time of the epoch.
        until: up to where all bins are to have applied the input; None in micro-batches, whose epochs have all records
            before theirs and no other.
    """

    epoch: int
    lines: tuple[bytes, ...]
    before_ms: int
    watermark_ms: int
    now_ms: int
    until: Until | None = None

    @property
    def batch(self) -> int:
        """Number of the batch that stands for the epoch: state is written behind batch 0 of a template."""
        return max(self.epoch, 1)

    @property
    def topics(self) -> list[set[str]]:
        """The topics that each source has read."""
        return [{topic for topic, _ in topics_of(line)} for line in self.lines]

    def head(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns the settings of a batch with the epoch's watermark and time."""
        return {**settings, "batchWatermarkMs": self.before_ms, "batchTimestampMs": self.now_ms}


def position_of(stored: StoredQuery, delay_ms: int | None, readings: Sequence[Reading]) -> Position:
    """Returns where a query stands that does not run.

    Args:
        stored: its checkpoint.
        delay_ms: by which the Spark query's watermark is behind the highest event time, None where it has none.
        readings: what the sources of the Spark query read.

    Raises:
        UsageError: it has not ended an epoch, records or timers wait for bins on their way, its input is not Kafka,
            offsets are not known, or it has a watermark and the Spark query none.
    """
    ended = stored.ended(None)
    clock = _clock(stored, ended.epoch, delay_ms or 0)
    before, watermark, waited = (None, None, 0) if clock is None else clock
    if ended.queued or waited:
        waits = f"{ended.queued} records wait for theirs" if ended.queued else f"the timers of {waited} bins wait"
        raise UsageError(
            f"The query of {stored.folder} was stopped while bins moved, and {waits}: start it again, and stop it when "
            "its migration is done."
        )
    if whole_ms(watermark) and delay_ms is None:  # adoption notes the 0 that Spark has for none
        raise UsageError("The query here has a watermark, and the Spark query has none: add its withWatermark.")
    if stored.settings.get("linked"):
        raise UsageError("The query reads another query's results, whose repeats no Spark query tells.")
    if stored.settings.get("mode") == "real-time":
        lines, until = _real_time(stored, readings)
        now_ms = time.time_ns() // 1_000_000
    else:
        lines, now_ms = _micro_batch(stored.folder / "spark", ended.epoch)
        until = None
    return Position(ended.epoch, lines, whole_ms(before), whole_ms(watermark), ended.now or now_ms, until)


def _clock(stored: StoredQuery, epoch: int, delay_ms: int) -> tuple[int | None, int | None, int] | None:
    """Returns (watermark of the last epoch, that of the next one, bins whose timers wait), None without event time.

    Watermarks are µs; timers have run up to the first one, but in bins that were on their way.
    """
    own = stored.folder / "rescale"
    journals = Journals.read(own, read_base(own, stored.query))
    clock = EventClock(EventTime.of_spark("", delay_ms), stored.bins)
    controller = Controller(np.zeros(stored.bins, np.int32), cast(Mechanism, None), clock)
    if journals.base is not None and "clock" not in journals.base.controller:
        return None
    journals.replay(controller, epoch)
    last = clock.at(0)
    return last.late, clock.watermark, len(last.waited)  # type: ignore[union-attr]


def _micro_batch(location: Path, epoch: int) -> tuple[tuple[bytes, ...], int]:
    """Returns of each source the offsets at an epoch's end, and the time at which Spark planned the epoch, ms."""
    path = location / "offsets" / str(epoch)
    try:
        lines = path.read_bytes().split(b"\n")
        sources = lines[_FIRST:-1]  # the last one begins epochs
        return _of_kafka(sources), int(json.loads(lines[1])["batchTimestampMs"])
    except OSError as error:
        raise UsageError(f"The file {path}, which has the offsets behind epoch {epoch}, cannot be read.") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(f"The file {path} is damaged.") from error


def _real_time(stored: StoredQuery, readings: Sequence[Reading]) -> tuple[tuple[bytes, ...], Until]:
    """Returns of each source the offsets behind what the last epoch waited for, and them by input partition."""
    own, location = stored.folder / "rescale", stored.folder / "spark"
    if makes_rows(own):
        raise UsageError(
            "The query makes several rows of a record in real time, so nobody knows whether all of the last one's have "
            "come: it cannot be released."
        )
    topics = Topics.read(own, readings)
    try:
        lines = _of_kafka(InputLog(str(location), topics).lines())
    except (OSError, ValueError) as error:
        raise UsageError(f"The offsets that the query of {stored.folder} has read are not noted ({error}).") from error
    offsets: dict[int, int] = {}
    for topic, parts in (pair for line in lines for pair in topics_of(line)):
        for part, at in parts.items():
            offsets |= {one: min(at, offsets.get(one, at)) for one in topics.input_partitions(topic, part)}
    return lines, Until(offsets, topics)


def _of_kafka(lines: Sequence[bytes]) -> tuple[bytes, ...]:
    if not lines or not all(dict(topics_of(line)) for line in lines):
        raise UsageError("The query has a source that is not Kafka, or that has had no data: it cannot be released.")
    return tuple(lines)
