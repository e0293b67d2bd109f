"""Addresses of servers and stores (URLs): whether one holds a secret, and what of it may be said."""

import re

_SCHEME = r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://"
_URL = re.compile(
    _SCHEME + r"(?:(?P<login>[^/?#@]*)@)?(?P<host>[^:/?#@]+|\[[^]/?#@]*\])(?P<port>:\d*)?(?P<path>/[^?#]*)?"
    r"(?P<query>\?[^#@]*)?(?P<rest>#[^@]*)?"
)
_SECRET = re.compile(r"pass|pwd|secret|token|key|sig|credential|auth", re.IGNORECASE)
_LOCAL = re.compile(r"[/.~]|[^@:]*\Z|[^@]*\Z")  # a path, or what nobody logs in to
_HIDDEN = "..."


def has_secret(url: str) -> bool:
    """Returns whether an address holds a password or a key, or may hold one as it is not written as a URL is."""
    return shown(url) != url


def shown(url: str) -> str:
    """Returns an address without who logs in and with what; of what is neither a URL nor a path nothing is shown.

    A name alone before the @ is no secret, such as a container's or a user's.

    >>> shown("redis://:pass@host:6379/0"), shown("s3://KEY:SECRET@bucket/a?region=eu"), shown("/a@b")
    ('redis://host:6379/0', 's3://bucket/a?region=eu', '/a@b')
    >>> shown("abfss://container@account.dfs.core.windows.net/p"), shown("redis://:pa/ss@host:6379/0")
    ('abfss://container@account.dfs.core.windows.net/p', 'redis://...')
    """
    parts = _URL.fullmatch(url)
    if parts is None or (parts["port"] and "@" in (parts["path"] or "")):  # a password that is not escaped
        scheme = re.match(_SCHEME, url)
        return f"{scheme[0]}{_HIDDEN}" if scheme else url if _LOCAL.match(url) else _HIDDEN
    names = (parts["query"] or "?")[1:].split("&")
    kept = [name for name in names if not _SECRET.search(name.partition("=")[0])]
    if ":" not in (parts["login"] or "") and len(kept) == len(names):
        return url
    login = "" if ":" in (parts["login"] or ":") else f"{parts['login']}@"
    query = f"?{'&'.join(kept)}" if any(kept) else ""
    path = f"{parts['host']}{parts['port'] or ''}{parts['path'] or ''}"
    return f"{parts['scheme']}://{login}{path}{query}{parts['rest'] or ''}"


def below(place: str, name: str) -> str:
    """Returns the address, or path, of a folder in another one.

    >>> below("s3://bucket/a/?region=eu", "b"), below("/a", "b")
    ('s3://bucket/a/b?region=eu', '/a/b')
    """
    path, mark, query = place.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"
