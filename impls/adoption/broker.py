"""Whether the broker still has what a native query was going to read next."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from impls.controltopic.commands import Offsets
from impls.errors import UsageError

__all__ = ["check_ranges", "check_topics"]

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
    found: Ranges = {topic: {} for topic in offsets.keys() & known.keys()}
    ends = [admin.list_offsets(dict.fromkeys(places, spec)) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
    for place in places:
        first, behind = (int(asked[place].result(_ASK_S).offset) for asked in ends)
        found[place.topic][place.partition] = (first, behind)
    return found


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
