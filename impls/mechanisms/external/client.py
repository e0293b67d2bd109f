"""The connection to the Redis server, one per process, and its errors as sentences."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from impls.errors import StateError, UsageError

_CONNECT_S = 5.0
_ANSWER_S = 60.0
_RETRIES = 6  # with the pauses below about 3 s: a server that starts again is waited for
_PAUSE_S, _PAUSE_MOST_S = 0.05, 1.0
_SCAN = 1000


def prefix(query: str) -> str:
    """Returns what all keys of a query begin with; the braces keep them on one node of a Redis cluster."""
    return f"rescale:{{{query}}}:"


def shown(url: str) -> str:
    """Returns the address without its password."""
    parts = urlsplit(url)
    return url.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if "@" in parts.netloc else url


@cache
def connect(url: str) -> Any:
    """Returns this process's client of a server, which connects when it is used; raises UsageError for a bad URL."""
    retry = Retry(ExponentialBackoff(cap=_PAUSE_MOST_S, base=_PAUSE_S), _RETRIES)
    try:
        return redis.Redis.from_url(
            url, retry=retry, protocol=2, socket_connect_timeout=_CONNECT_S, socket_timeout=_ANSWER_S
        )
    except ValueError as error:
        raise UsageError(f"{shown(url)} is no address of a Redis server: use redis://HOST:PORT.") from error


@cache
def script(url: str, text: str) -> Callable[..., Any]:
    """Returns a script as a function of (keys, args); it is sent to the server once."""
    made: Callable[..., Any] = connect(url).register_script(text)
    return made


@contextmanager
def reach(url: str) -> Iterator[None]:
    """Turns the errors of the server into StateError with one sentence."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StateError(f"The Redis server {shown(url)} does not answer: see whether it runs ({error}).") from error
    except redis.RedisError as error:
        raise StateError(f"The Redis server {shown(url)} refuses a request: {error}.") from error


def check_server(url: str) -> None:
    """Raises UsageError when the server does not answer, or may evict keys."""
    try:
        with reach(url):
            policy = connect(url).info("memory").get("maxmemory_policy", "noeviction")
    except StateError as error:
        raise UsageError(str(error)) from error
    if policy != "noeviction":
        raise UsageError(
            f"The Redis server {shown(url)} may throw state away when its memory is full (maxmemory-policy {policy}): "
            "set it to noeviction."
        )


def forget(url: str, query: str) -> None:
    """Deletes all that a query has stored."""
    with reach(url):
        server, batch = connect(url), []
        for key in server.scan_iter(match=prefix(query) + "*", count=_SCAN):
            batch.append(key)
            if len(batch) == _SCAN:
                server.unlink(*batch)
                batch.clear()
        if batch:
            server.unlink(*batch)
