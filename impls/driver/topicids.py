"""The broker's ids of topics: one that was deleted and made anew has another id under the same name."""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from impls.errors import StateError

_DEADLINE_S = 10.0
_LOG = logging.getLogger(__package__)


def names_of(settings: Mapping[str, Any], within_s: float = _DEADLINE_S) -> set[str]:
    """Returns the names of a broker's topics; raises StateError when it does not answer in time, in seconds."""
    client = AdminClient({**settings, "log_level": 0, "error_cb": lambda _: None})
    try:
        return set(client.list_topics(timeout=within_s).topics)
    except KafkaException as error:
        raise StateError(f"The broker does not name its topics: {error.args[0].str()}.") from error


def ids_of(settings: Mapping[str, Any], topics: Iterable[str], within_s: float = _DEADLINE_S) -> dict[str, str]:
    """Returns the broker's ids of topics, without those that it does not have, or does not say in time.

    Args:
        settings: librdkafka's, for the broker.
        topics: names.
        within_s: the time, in seconds.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    client = AdminClient({**settings, "log_level": 0, "error_cb": lambda _: None})
    asked = client.describe_topics(TopicCollection(names), request_timeout=within_s)
    ids, end = {}, time.monotonic() + within_s
    for name, answer in asked.items():
        try:
            ids[name] = str(answer.result(max(end - time.monotonic(), 0)).topic_id)
        except TimeoutError:
            _LOG.warning("The broker does not say in %g s whether topic %s was made anew.", within_s, name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                _LOG.warning("The broker does not say whether topic %s was made anew: %s.", name, error.args[0].str())
    return ids
