"""What the state variables of a processor share in an input: the entries, the key at work, processing time."""

from collections.abc import Iterable

from pyspark.errors import PySparkRuntimeError

from impls.store import naming
from impls.store.buffered import Buffered

_NO_KEY = "[STATE_STORE_UNSUPPORTED_OPERATION] There is no grouping key here: state is for handleInputRows and timers."


class Scope:
    """What all state variables of a processor share in an input: the entries, the key at work, processing time.

    Attributes:
        entries: those of the worker's bins.
        now: processing time, ms.
        front: what stands in front of the key's values, lists' bounds and fields, see `impls.store.naming`.
        timed: bins whose timers or expiries may have changed.
    """

    def __init__(self, entries: Buffered, now: int):
        self.entries, self.now, self.timed = entries, now, set[int]()
        self.bin, self.key, self._part, self.front = -1, b"", b"", b""
        self._places: list[tuple[int, bytes]] = []
        self._loaded: set[bytes] = set()

    def expect(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Says which keys, each with its bin, are to come: the first read of a variable reads it for all of them."""
        self._places, self._loaded = [(bin_, naming.key_part(key)) for bin_, key in keys], set()

    def at(self, bin_: int, key: bytes) -> None:
        """Makes a key the one at work."""
        self.bin, self.key, self._part, self.front = bin_, key, naming.key_part(key), naming.key_front(key)

    def name(self, head: bytes) -> bytes:
        """Returns the name of the key's entry, given its beginning."""
        if self.bin < 0:
            raise PySparkRuntimeError(_NO_KEY)
        return head + self._part

    def get(self, head: bytes) -> bytes | None:
        """Returns the value of the key's entry, without `front`, given the beginning of its name."""
        if head not in self._loaded:
            self._loaded.add(head)
            self.entries.load([(bin_, head + part) for bin_, part in self._places])
        raw = self.entries.get(self.bin, self.name(head))
        return None if raw is None else raw[len(self.front) :]

    def read(self, name: bytes) -> bytes | None:
        """Returns the value of an entry of the key's bin, given its name."""
        return self.entries.get(self.bin, name)

    def names(self, head: bytes) -> list[bytes]:
        """Returns the names, ascending, of the entries of the key's bin that begin with `head`."""
        return [name for name, _ in self.entries.scan(self.bin, head, naming.after(head))]

    def put(self, name: bytes, value: bytes | None) -> None:
        """Writes an entry of the key; None deletes it."""
        self.entries.put(self.bin, name, value)

    def note(self, entry: bytes, *, due: int | None, before: int | None) -> None:
        """Puts the expiry of an entry at a time, None for none, instead of `before`, None where there was none."""
        if due != before:
            if before is not None:
                self.put(naming.expiry_name(before, entry), None)
            if due is not None:
                self.put(naming.expiry_name(due, entry), b"")
            self.timed.add(self.bin)
