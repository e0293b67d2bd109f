"""Topics of a Kafka broker: created, with a leader for every partition."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from impls.errors import UsageError

_CREATE_DEADLINE_S = 30.0
_POLL_S = 0.02


def create_topics(bootstrap: str, topics: Mapping[str, int], *, broker_time: bool = False) -> None:
    """Creates topics (name -> partitions) that keep their records; one that exists with as many partitions is kept.

    With `broker_time` a record carries the time at which the broker appended it, not the one its producer gives.

    Raises:
        UsageError: the broker refuses, or a topic exists with another number of partitions.
    """
    admin = admin_of(bootstrap)
    config = {"retention.ms": "-1", **({"message.timestamp.type": "LogAppendTime"} if broker_time else {})}
    new = [
        NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config)
        for name, partitions in topics.items()
    ]
    for name, created in admin.create_topics(new, request_timeout=_CREATE_DEADLINE_S).items():
        try:
            created.result(_CREATE_DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UsageError(f"The broker refuses to create the topic {name}: {words_of(error)}.") from error
            _check_partitions(admin, name, topics[name])
    _await_leaders(admin, topics)


def _await_leaders(admin: AdminClient, topics: Mapping[str, int]) -> None:
    """Waits until every partition's leader answers: it is named before it has made the partition's log."""
    end = time.monotonic() + _CREATE_DEADLINE_S
    ends = {TopicPartition(name, number): OffsetSpec.latest() for name in topics for number in range(topics[name])}
    while True:
        waiting = [place.topic for place, told in admin.list_offsets(ends).items() if not _answered(told)]
        if not waiting:
            return
        if time.monotonic() > end:
            raise UsageError(
                f"The topic {waiting[0]} has no leader after {_CREATE_DEADLINE_S:.0f} s: see the broker's log."
            )
        time.sleep(_POLL_S)


def _answered(told: Future[Any]) -> bool:
    try:
        told.result(_CREATE_DEADLINE_S)
    except KafkaException:
        return False
    return True


def _check_partitions(admin: AdminClient, name: str, wanted: int) -> None:
    found = len(admin.list_topics(name, timeout=_CREATE_DEADLINE_S).topics[name].partitions)
    if found != wanted:
        raise UsageError(
            f"The topic {name} exists with {found} partitions, not {wanted}: delete it, or ask for {found}."
        )


def admin_of(bootstrap: str) -> AdminClient:
    """Returns a client for the administration of a broker; its errors come back from its calls."""
    quiet = {"log_level": 0, "error_cb": lambda _: None}
    return AdminClient({"bootstrap.servers": bootstrap, **quiet})


def words_of(error: KafkaException) -> str:
    """Returns what the client says of an error."""
    return str(error.args[0].str())
