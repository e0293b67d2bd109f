"""Addresses of servers and stores (URLs): whether one holds a secret, and what of it may be said."""

import re

_PARTS = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<place>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL)
_SECRET = re.compile(r"pass|secret|token|key|sig|credential", re.IGNORECASE)
_PORT = re.compile(r"[^:]*|.*\]|.*:\d*")  # what may stand behind the colon of a host that nobody logs in to


def has_secret(url: str) -> bool:
    """Returns whether an address holds a password or a key: before the @ of its host, or as a parameter behind ?."""
    return shown(url) != url


def shown(url: str) -> str:
    """Returns an address without who logs in and with what, whatever it is; what is no URL is returned as it is.

    >>> shown("redis://:pass@host:6379/0"), shown("s3://KEY:SECRET@bucket/a?region=eu"), shown("/a@b")
    ('redis://host:6379/0', 's3://bucket/a?region=eu', '/a@b')
    >>> shown("redis://:pa/ss@host:6379/0")
    'redis://...'
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return url
    place = parts["place"].rpartition("@")[2]
    if place == parts["place"] and not _PORT.fullmatch(place):  # a password that is not escaped
        return f"{parts['scheme']}://..."
    names = parts["rest"].removeprefix("?").split("&")
    kept = "&".join(name for name in names if not _SECRET.search(name.partition("=")[0]))
    rest = parts["rest"] if kept == "&".join(names) else f"?{kept}" if kept else ""
    return f"{parts['scheme']}://{place}{parts['path']}{rest}"
