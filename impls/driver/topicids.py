"""The broker's ids of topics: one that was deleted and made anew has another id under the same name."""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient

from impls.errors import StateError

_DEADLINE_S = 10.0
_NO_ID = str(Uuid(0, 0))  # of a broker that gives topics no ids
_LOG = logging.getLogger(__package__)


def admin_of(settings: Mapping[str, Any]) -> AdminClient:
    """Returns a client for `describe`, by librdkafka's settings for the broker; it writes no log of its own."""
    return AdminClient({**settings, "log_level": 0, "error_cb": lambda _: None})


def partitions_of(settings: Mapping[str, Any], within_s: float = _DEADLINE_S) -> dict[str, set[int]]:
    """Returns the partitions of all of a broker's topics; raises StateError when it does not answer in time, in s."""
    try:
        topics = admin_of(settings).list_topics(timeout=within_s).topics
    except KafkaException as error:
        raise StateError(f"The broker does not name its topics: {error.args[0].str()}.") from error
    return {name: set(topic.partitions) for name, topic in topics.items()}


def ids_of(settings: Mapping[str, Any], topics: Iterable[str], within_s: float = _DEADLINE_S) -> dict[str, str]:
    """Returns the broker's ids of topics, without those that it does not have, or does not say in time, in s."""
    return describe(admin_of(settings), topics, within_s)[0]


def describe(
    client: AdminClient, topics: Iterable[str], within_s: float = _DEADLINE_S
) -> tuple[dict[str, str], set[str]]:
    """Returns the broker's ids of topics, and the topics of which it does not say in time whether it has them.

    It is one request, 1 ms for a client that is connected and 5 ms for a new one.

    Args:
        client: see `admin_of`.
        topics: names.
        within_s: the time, in seconds.
    """
    names = sorted(set(topics))
    if not names:
        return {}, set()
    answers = client.describe_topics(TopicCollection(names), request_timeout=within_s)
    ids, reasons, end = {}, {}, time.monotonic() + within_s
    for name, answer in answers.items():
        try:
            if (id_ := str(answer.result(max(end - time.monotonic(), 0)).topic_id)) != _NO_ID:
                ids[name] = id_
        except TimeoutError:
            reasons[name] = f"no answer in {within_s:g} s"
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                reasons[name] = error.args[0].str()
    for reason in sorted(set(reasons.values())):
        silent = ", ".join(name for name in names if reasons.get(name) == reason)
        _LOG.warning("The broker does not say whether these topics were made anew: %s (%s).", silent, reason)
    return ids, set(reasons)
