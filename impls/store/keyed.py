"""Keyed state for operators with event time: values, lists, maps and timers, all of them entries of a bin.

As entries they move, are logged, snapshotted and recovered with their bin; `impls.store.naming` says which there are.
The earliest timer of each bin stands in a table of its own, so that an epoch looks at one compact range of the worker's
store and not at every bin (`BinState.bins_with_timers`).
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from impls.protocol.jsontext import value_from_text, value_to_text
from impls.store import naming
from impls.store.buffered import ABSENT, Buffered
from impls.store.state import BinState


def variable_of(entry: bytes) -> str | None:
    """Returns the name under which an entry's value is kept, None for a timer and the bounds of a list."""
    return None if entry[:1] in {naming.TIMER, naming.LIST} else naming.label_of(entry)


class Keyed:
    """State by (bin, key) within one worker and epoch; what is written is seen at once and stored by flush().

    Values are JSON. Everything is named by a key and, where an operator keeps several things per key, a short name.
    emit() sends a result.

    Attributes:
        watermark: of the epoch whose records are applied; None before there is one. Timers must not depend on it.
        careful: what one record does to state can be taken back: begin() before it, take_back() where it has failed.
    """

    def __init__(self, state: BinState):
        self._state, self.careful = state, state.careful
        self._entries = Buffered(state)
        self._values: dict[tuple[int, bytes], Any] = {}
        self._changed: dict[tuple[int, bytes], bytes] = {}  # what stands in front of values to encode, in order
        self._heads: dict[tuple[bytes, str], bytes] = {}
        self._firing: tuple[int, int, list[bytes]] = (-1, 0, [])
        self.watermark: int | None = None
        self.emitted: tuple[list[int], list[bytes], list[bytes]] = ([], [], [])

    # -- results ------------------------------------------------------------------------------------------------------

    def emit(self, bin_: int, key: bytes, value: Any) -> None:
        """Sends a result; its payload is the value as compact JSON."""
        bins, keys, payloads = self.emitted
        bins.append(bin_)
        keys.append(key)
        payloads.append(value_to_text(value))

    def _name(self, family: bytes, key: bytes, name: str) -> bytes:
        if (head := self._heads.get((family, name))) is None:
            head = self._heads[family, name] = family + naming.label_part(name)
        return head + naming.key_part(key)

    # -- value --------------------------------------------------------------------------------------------------------

    def load(self, bins: Sequence[int], keys: Sequence[bytes], name: str = "") -> None:
        """Reads the values of many keys at once; reading them one by one afterwards costs nothing."""
        self._entries.load([(b, self._name(naming.VALUE, k, name)) for b, k in zip(bins, keys, strict=True)])

    def value(self, bin_: int, key: bytes, name: str = "") -> Any:
        """Returns a key's value, None when it has none; to change it, call set_value with it."""
        place = (bin_, self._name(naming.VALUE, key, name))
        if (value := self._values.get(place, ABSENT)) is ABSENT:
            raw = self._entries.get(*place)
            value = self._values[place] = None if raw is None else value_from_text(raw[len(naming.key_front(key)) :])
        return value

    def set_value(self, bin_: int, key: bytes, value: Any, name: str = "") -> None:
        """Sets a key's value; None deletes it."""
        place = (bin_, self._name(naming.VALUE, key, name))
        self._values[place] = value
        self._changed[place] = naming.key_front(key)

    # -- list ---------------------------------------------------------------------------------------------------------

    def append(self, bin_: int, key: bytes, item: Any, name: str = "") -> None:
        """Adds an item to the end of a key's list."""
        head, (first, end) = self._list(bin_, key, name)
        self._entries.put(bin_, naming.item_name(head, end), value_to_text(item))
        self._entries.put(bin_, head, naming.key_front(key) + naming.list_head(first, end + 1))

    def items(self, bin_: int, key: bytes, name: str = "") -> list[Any]:
        """Returns a key's list, empty when it has none."""
        return [value_from_text(raw) for _, raw in self._items(bin_, *self._list(bin_, key, name))]

    def clear(self, bin_: int, key: bytes, name: str = "") -> None:
        """Deletes a key's list."""
        head, bounds = self._list(bin_, key, name)
        for item, _ in self._items(bin_, head, bounds):
            self._entries.put(bin_, item, None)
        self._entries.put(bin_, head, None)

    def _list(self, bin_: int, key: bytes, name: str) -> tuple[bytes, tuple[int, int]]:
        """Returns the name of a list's entry, and the indexes of its first item and behind its last."""
        head = self._name(naming.LIST, key, name)
        raw = self._entries.get(bin_, head)
        return head, naming.list_bounds(None if raw is None else raw[len(naming.key_front(key)) :])

    def _items(self, bin_: int, head: bytes, bounds: tuple[int, int]) -> list[tuple[bytes, bytes]]:
        first, end = bounds
        if first == end:
            return []
        return self._entries.scan(bin_, naming.item_name(head, first), naming.item_name(head, end))

    # -- map ----------------------------------------------------------------------------------------------------------

    def load_map(self, bins: Sequence[int], keys: Sequence[bytes], fields: Sequence[bytes], name: str = "") -> None:
        """Reads many fields of maps at once."""
        self._entries.load([(b, self._field(k, f, name)[0]) for b, k, f in zip(bins, keys, fields, strict=True)])

    def field(self, bin_: int, key: bytes, field: bytes, name: str = "") -> Any:
        """Returns a field of a key's map, None when it is not there."""
        place, front = self._field(key, field, name)
        raw = self._entries.get(bin_, place)
        return None if raw is None else value_from_text(raw[len(front) :])

    def set_field(self, bin_: int, key: bytes, field: bytes, value: Any, name: str = "") -> None:
        """Sets a field of a key's map; None deletes it."""
        place, front = self._field(key, field, name)
        self._entries.put(bin_, place, None if value is None else front + value_to_text(value))

    def fields(
        self, bin_: int, key: bytes, name: str = "", within: tuple[bytes, bytes] | None = None
    ) -> list[tuple[bytes, Any]]:
        """Returns (field, value) of a key's map in order of the fields, behind them those of more than 150 bytes.

        `within` a range are fields with low <= field < high of at most 150 bytes each.
        """
        head = self._name(naming.MAP, key, name)
        low, high = (head, naming.after(head)) if within is None else [head + naming.field_part(f)[0] for f in within]
        found = self._entries.scan(bin_, low, high)
        front = len(naming.key_front(key))
        fields = [naming.field_of(entry[len(head) :], raw[front:]) for entry, raw in found]
        return [(field, value_from_text(raw)) for field, raw in fields]

    def clear_fields(self, bin_: int, key: bytes, name: str = "") -> None:
        """Deletes a key's map."""
        head = self._name(naming.MAP, key, name)
        self._entries.delete_all(bin_, head, naming.after(head))

    def _field(self, key: bytes, field: bytes, name: str) -> tuple[bytes, bytes]:
        """Returns the name of a field's entry, and what stands in front of its value."""
        part, front = naming.field_part(field)
        return self._name(naming.MAP, key, name) + part, naming.key_front(key) + front

    # -- timers -------------------------------------------------------------------------------------------------------

    def set_timer(self, bin_: int, time: int, key: bytes) -> None:
        """Asks for `on_timer` when the watermark has reached a time; setting the same timer again changes nothing."""
        name, value = naming.timer_name(time, key)
        self._entries.put(bin_, name, value)
        firing, until, heap = self._firing
        if firing == bin_ and time <= until:
            heapq.heappush(heap, name)

    def cancel_timer(self, bin_: int, time: int, key: bytes) -> None:
        """Takes a timer back; one that is not set is left alone."""
        self._entries.put(bin_, naming.timer_name(time, key)[0], None)

    def fire(self, bins: Iterable[int], until: int, call: Callable[[int, int, bytes], None]) -> int:
        """Calls `call(bin, time, key)` for the timers of bins up to a time, per bin in order of time.

        Of one time shorter keys come first, and keys of one length ascending. Timers set meanwhile take part. Returns
        how many were fired.
        """
        due = {b: self._entries.scan(b, *naming.timers_until(until)) for b in bins}
        keys = [(b, naming.timer_of(*timer)[1]) for b, timers in due.items() for timer in timers]
        self.load([b for b, _ in keys], [key for _, key in keys])
        fired = 0
        for bin_, timers in due.items():
            self._firing = (bin_, until, heap := [name for name, _ in timers])
            while heap:
                name = heapq.heappop(heap)
                if (value := self._entries.get(bin_, name)) is not None:  # else cancelled, or set twice
                    self._entries.put(bin_, name, None)
                    fired += 1
                    call(bin_, *naming.timer_of(name, value))
        self._firing = (-1, 0, [])
        return fired

    # -- entries ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From here on take_back() takes back what is done to state, but for results and due timers."""
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
        naming.note_changed(self._state, self._entries.flush(), (naming.TIMER,))

    def settle(self) -> None:
        """Encodes values that were set; raises what encoding them raises."""
        for (bin_, name), front in self._changed.items():
            value = self._values[bin_, name]
            self._entries.put(bin_, name, None if value is None else front + value_to_text(value))
        self._changed.clear()
