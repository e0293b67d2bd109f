"""Keyed state for operators with event time: values, lists, maps and timers, all of them entries of a bin.

As entries they move, are logged, snapshotted and recovered with their bin. Timers are entries whose key begins with the
big-endian time, so that the due ones are one range; the earliest timer of each bin stands in a table of its own, so
that an epoch looks at one compact range of the worker's store and not at every bin (`BinState.bins_with_timers`).
"""

import heapq
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from impls.errors import UsageError
from impls.protocol.eventtime import Merge, Partial
from impls.store.buffered import ABSENT, Buffered
from impls.store.hashing import hash_bytes
from impls.store.state import BinState

KEY_MAX = 400  # longer keys would be stored as hashes, and a timer gives its key back
_TIMER, _VALUE, _LIST, _MAP = b"\0", b"\1", b"\2", b"\3"
_BIAS = 1 << 63


def _name(family: bytes, key: bytes, name: str, sub: bytes = b"") -> bytes:
    label = name.encode()
    if len(key) + len(label) + len(sub) > KEY_MAX:
        raise UsageError(f"A key of state is longer than {KEY_MAX} bytes: {key[:20]!r}...; shorten it.")
    return b"".join((family, bytes([len(label)]), label, len(key).to_bytes(2, "big"), key, sub))


def name_of(entry: bytes) -> str | None:
    """Returns the name under which an entry's value is kept, None for a timer and the length of a list.

    Of a list an item may be left out by no migration: its length would be wrong.
    """
    family, label = entry[:1], entry[2 : 2 + entry[1]]
    behind = len(entry) - 4 - len(label) - int.from_bytes(entry[2 + len(label) : 4 + len(label)], "big")
    return None if family == _TIMER or (family == _LIST and not behind) else label.decode()


def _timer(time: int, key: bytes = b"") -> bytes:
    if len(key) > KEY_MAX:
        raise UsageError(f"The key of a timer is longer than {KEY_MAX} bytes: {key[:20]!r}...; shorten it.")
    return _TIMER + (time + _BIAS).to_bytes(8, "big") + key


def _after(prefix: bytes) -> bytes:
    """Returns the first key behind all keys that begin with a prefix; its last byte is below 255 or the key is long."""
    return prefix + b"\xff" * (KEY_MAX + 1)


class Keyed:
    """State by (bin, key) within one worker and epoch; what is written is seen at once and stored by flush().

    Values are JSON. Everything is named by a key and, where an operator keeps several things per key, a short name.
    emit() sends a result, contribute() gives a partial (see `impls.protocol.eventtime`).

    Attributes:
        watermark: of the epoch whose records are applied; None before there is one. Timers must not depend on it.
        careful: what one record does to state can be taken back: begin() before it, take_back() where it has failed.
    """

    def __init__(self, state: BinState):
        self._state, self.careful = state, state.careful
        self._entries = Buffered(state)
        self._values: dict[tuple[int, bytes], Any] = {}
        self._changed: dict[tuple[int, bytes], None] = {}  # values to encode, in order
        self._timed: set[int] = set()
        self._firing: tuple[int, int, list[bytes]] = (-1, 0, [])
        self.watermark: int | None = None
        self.emitted: tuple[list[int], list[bytes], list[bytes]] = ([], [], [])
        self._contributed: dict[tuple[int, bytes], list[Any]] = {}

    # -- results and partials -----------------------------------------------------------------------------------------

    def emit(self, bin_: int, key: bytes, value: Any) -> None:
        """Sends a result; its payload is the value as compact JSON."""
        bins, keys, payloads = self.emitted
        bins.append(bin_)
        keys.append(key)
        payloads.append(_dump(value))

    def contribute(self, time: int, key: bytes, value: Any) -> None:
        """Gives a partial that comes, merged, to the bin of its key when all timers up to `time` have run."""
        if self.careful:
            _dump(Partial.of(time, key, hash_bytes(key) * self._state.bins >> 64, value).to_json())
        self._contributed.setdefault((time, key), []).append(value)

    def partials(self, merge: Merge) -> list[Partial]:
        """Returns what was contributed, in order of (time, key), values of equal time and key merged."""
        return [
            Partial.of(time, key, hash_bytes(key) * self._state.bins >> 64, value)
            for (time, key), values in sorted(self._contributed.items())
            for value in (merge(values) if len(values) > 1 else values)
        ]

    # -- value --------------------------------------------------------------------------------------------------------

    def load(self, bins: Sequence[int], keys: Sequence[bytes], name: str = "") -> None:
        """Reads the values of many keys at once; reading them one by one afterwards costs nothing."""
        self._entries.load([(b, _name(_VALUE, k, name)) for b, k in zip(bins, keys, strict=True)])

    def value(self, bin_: int, key: bytes, name: str = "") -> Any:
        """Returns a key's value, None when it has none; to change it, call set_value with it."""
        place = (bin_, _name(_VALUE, key, name))
        if (value := self._values.get(place, ABSENT)) is ABSENT:
            raw = self._entries.get(*place)
            value = self._values[place] = None if raw is None else json.loads(raw)
        return value

    def set_value(self, bin_: int, key: bytes, value: Any, name: str = "") -> None:
        """Sets a key's value; None deletes it."""
        place = (bin_, _name(_VALUE, key, name))
        self._values[place] = value
        self._changed[place] = None

    # -- list ---------------------------------------------------------------------------------------------------------

    def append(self, bin_: int, key: bytes, item: Any, name: str = "") -> None:
        """Adds an item to the end of a key's list."""
        head = _name(_LIST, key, name)
        length = int.from_bytes(self._entries.get(bin_, head) or b"", "big")
        self._entries.put(bin_, head + length.to_bytes(6, "big"), _dump(item))
        self._entries.put(bin_, head, (length + 1).to_bytes(6, "big"))

    def items(self, bin_: int, key: bytes, name: str = "") -> list[Any]:
        """Returns a key's list, empty when it has none."""
        head = _name(_LIST, key, name)
        length = int.from_bytes(self._entries.get(bin_, head) or b"", "big")
        found = self._entries.scan(bin_, head + b"\0", head + length.to_bytes(6, "big")) if length else []
        return [json.loads(raw) for _, raw in found]

    def clear(self, bin_: int, key: bytes, name: str = "") -> None:
        """Deletes a key's list."""
        head = _name(_LIST, key, name)
        self._entries.delete_all(bin_, head, _after(head))

    # -- map ----------------------------------------------------------------------------------------------------------

    def load_map(self, bins: Sequence[int], keys: Sequence[bytes], fields: Sequence[bytes], name: str = "") -> None:
        """Reads many fields of maps at once."""
        self._entries.load([(b, _name(_MAP, k, name, f)) for b, k, f in zip(bins, keys, fields, strict=True)])

    def field(self, bin_: int, key: bytes, field: bytes, name: str = "") -> Any:
        """Returns a field of a key's map, None when it is not there."""
        raw = self._entries.get(bin_, _name(_MAP, key, name, field))
        return None if raw is None else json.loads(raw)

    def set_field(self, bin_: int, key: bytes, field: bytes, value: Any, name: str = "") -> None:
        """Sets a field of a key's map; None deletes it."""
        self._entries.put(bin_, _name(_MAP, key, name, field), None if value is None else _dump(value))

    def fields(self, bin_: int, key: bytes, name: str = "") -> list[tuple[bytes, Any]]:
        """Returns (field, value) of a key's map in order of the fields."""
        head = _name(_MAP, key, name)
        return [(found[len(head) :], json.loads(raw)) for found, raw in self._entries.scan(bin_, head, _after(head))]

    def clear_fields(self, bin_: int, key: bytes, name: str = "") -> None:
        """Deletes a key's map."""
        head = _name(_MAP, key, name)
        self._entries.delete_all(bin_, head, _after(head))

    # -- timers -------------------------------------------------------------------------------------------------------

    def set_timer(self, bin_: int, time: int, key: bytes) -> None:
        """Asks for `on_timer` when the watermark has reached a time; setting the same timer again changes nothing."""
        name = _timer(time, key)
        self._entries.put(bin_, name, b"")
        self._timed.add(bin_)
        firing, until, heap = self._firing
        if firing == bin_ and time <= until:
            heapq.heappush(heap, name)

    def cancel_timer(self, bin_: int, time: int, key: bytes) -> None:
        """Takes a timer back; one that is not set is left alone."""
        self._entries.put(bin_, _timer(time, key), None)
        self._timed.add(bin_)

    def fire(self, bins: Iterable[int], until: int, call: Callable[[int, int, bytes], None]) -> int:
        """Calls `call(bin, time, key)` for the timers of bins up to a time, per bin in order of (time, key).

        Timers set meanwhile take part. Returns how many were fired.
        """
        due = {b: [name for name, _ in self._entries.scan(b, _TIMER, _timer(until + 1))] for b in bins}
        self._entries.load([(b, _name(_VALUE, name[9:], "")) for b, names in due.items() for name in names])
        fired = 0
        for bin_, heap in due.items():
            self._firing = (bin_, until, heap)
            while heap:
                name = heapq.heappop(heap)
                if self._entries.get(bin_, name) is not None:  # else cancelled, or set twice
                    self._entries.put(bin_, name, None)
                    self._timed.add(bin_)
                    fired += 1
                    call(bin_, int.from_bytes(name[1:9], "big") - _BIAS, name[9:])
        self._firing = (-1, 0, [])
        return fired

    # -- entries ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From here on take_back() takes back what is done to state, but for results, partials and due timers."""
        self.settle()
        self._entries.begin()

    def take_back(self) -> None:
        """Takes back what was done to state since begin(); values that were changed in place are read again."""
        self._values.clear()
        self._changed.clear()
        self._entries.take_back()

    def flush(self) -> None:
        """Writes what has changed to the state."""
        self.settle()
        self._entries.flush()
        for bin_ in sorted(self._timed):
            first = self._state.first(bin_, _TIMER, _VALUE)
            self._state.set_earliest_timer(bin_, None if first is None else int.from_bytes(first[1:9], "big") - _BIAS)
        self._timed.clear()

    def settle(self) -> None:
        """Encodes values that were set; raises what encoding them raises."""
        for bin_, name in self._changed:
            value = self._values[bin_, name]
            self._entries.put(bin_, name, None if value is None else _dump(value))
        self._changed.clear()


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
