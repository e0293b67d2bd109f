"""The write-through cache of a worker process: entries as stored, the longest unused go first."""

from collections import OrderedDict
from collections.abc import Collection

_ENTRY_BYTES = 200  # what Python needs for an entry beside its name and value
_caches: OrderedDict[tuple[str, str, int], "Cache"] = OrderedDict()


class Cache:
    """Entries, tokens and sizes of one worker's bins as of one commit of that worker.

    Attributes:
        commit: the meta record of that commit; a worker that finds another in the store has to `clear`.
        heads: (token, size record) of the bins of which entries may be here.
        bytes: size of all entries.
    """

    def __init__(self) -> None:
        self.heads: dict[int, tuple[bytes, bytes | None]] = {}
        self._entries: OrderedDict[bytes, bytes] = OrderedDict()
        self.clear()

    def get(self, name: bytes) -> bytes | None:
        """Returns the value of an entry, None for one that is not here."""
        value = self._entries.get(name)
        if value is not None:
            self._entries.move_to_end(name)
        return value

    def put(self, name: bytes, value: bytes | None) -> None:
        """Takes an entry; None forgets it."""
        before = self._entries.pop(name, None)
        if before is not None:
            self.bytes -= _size(name, before)
        if value is not None:
            self._entries[name] = value
            self.bytes += _size(name, value)

    def trim(self, limit: int) -> None:
        """Removes entries, the longest unused first, until the rest is at most `limit` bytes."""
        while self.bytes > limit:
            self.bytes -= _size(*self._entries.popitem(last=False))

    def forget(self, bins: Collection[int]) -> None:
        """Removes all entries of bins."""
        known = {bin_ for bin_ in bins if self.heads.pop(bin_, None) is not None}
        if known:
            for name in [name for name in self._entries if int.from_bytes(name[1:3], "big") in known]:
                self.put(name, None)

    def clear(self) -> None:
        """Removes everything."""
        self.commit, self.bytes = b"", 0
        self.heads.clear()
        self._entries.clear()


def _size(name: bytes, value: bytes) -> int:
    return len(name) + len(value) + _ENTRY_BYTES


def cache_of(url: str, query: str, worker: int, limit: int) -> Cache:
    """Returns this process's cache of a worker; those of others go while all together are above `limit` bytes."""
    name = (url, query, worker)
    cache = _caches.setdefault(name, Cache())
    _caches.move_to_end(name)
    while len(_caches) > 1 and sum(held.bytes for held in _caches.values()) > limit:
        _caches.popitem(last=False)
    return cache
