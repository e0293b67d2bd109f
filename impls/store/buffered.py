"""Entries that an epoch has read and written, before they go to the store."""

from collections.abc import Iterable
from typing import Any

from impls.store.state import BinState

ABSENT = object()
"""In place of a value that is not there."""

_Place = tuple[int, bytes]


class Buffered:
    """Entries by (bin, name); what is written is seen at once and stored by flush()."""

    def __init__(self, state: BinState):
        self.state = state
        self._stored: dict[_Place, bytes | None] = {}
        self._written: dict[int, dict[bytes, bytes | None]] = {}
        self._before: list[tuple[int, bytes, Any]] | None = None  # what has been written over since begin()

    def begin(self) -> None:
        """From here on take_back() takes back what is written."""
        self._before = []

    def take_back(self) -> None:
        """Takes back what was written since begin()."""
        for bin_, name, value in reversed(self._before or ()):
            if value is ABSENT:
                del self._written[bin_][name]
            else:
                self._written[bin_][name] = value
        self._before = []

    def load(self, places: Iterable[_Place]) -> None:
        """Reads many entries at once; reading them one by one afterwards costs nothing."""
        wanted = [place for place in dict.fromkeys(places) if place not in self._stored]
        if wanted:
            found = self.state.get_many([b for b, _ in wanted], [name for _, name in wanted])
            self._stored |= dict(zip(wanted, found, strict=True))

    def get(self, bin_: int, name: bytes) -> bytes | None:
        """Returns an entry's value, None when it is not there."""
        own = self._written.get(bin_)
        if own is not None and name in own:
            return own[name]
        if (bin_, name) not in self._stored:
            self.load([(bin_, name)])
        return self._stored[bin_, name]

    def put(self, bin_: int, name: bytes, value: bytes | None) -> None:
        """Writes an entry; None deletes it."""
        own = self._written.setdefault(bin_, {})
        if self._before is not None:
            self._before.append((bin_, name, own.get(name, ABSENT)))
        own[name] = value

    def scan(self, bin_: int, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        """Returns (name, value) of a bin's entries with low <= name < high, in order of names."""
        entries = self.state.scan(bin_, low, high)
        self._stored |= {(bin_, name): value for name, value in entries}
        own = {name: value for name, value in self._written.get(bin_, {}).items() if low <= name < high}
        if not own:
            return entries
        merged: dict[bytes, bytes | None] = {**dict(entries), **own}
        return sorted((name, value) for name, value in merged.items() if value is not None)

    def delete_all(self, bin_: int, low: bytes, high: bytes) -> None:
        """Deletes the entries that scan() returns."""
        for name, _ in self.scan(bin_, low, high):
            self.put(bin_, name, None)

    def flush(self) -> list[_Place]:
        """Writes what has changed to the state, and returns its places; what was written as it stood has not."""
        written = {(b, name): value for b, own in self._written.items() for name, value in own.items()}
        self.load(written)
        changed = [(place, value) for place, value in written.items() if value != self._stored[place]]
        puts = [(place, value) for place, value in changed if value is not None]
        for (bin_, name), value in changed:
            if value is None:
                self.state.delete(bin_, name)
        if puts:
            old = [self._stored[place] for place, _ in puts]
            places, values = [place for place, _ in puts], [value for _, value in puts]
            self.state.put_many([b for b, _ in places], [name for _, name in places], values, old)
        self._stored |= changed
        self._written.clear()
        return [place for place, _ in changed]
