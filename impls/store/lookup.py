"""What an environment has of keys, read beside the worker that writes it: nothing is written, and packs stay packs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import lmdb

from impls.errors import CorruptStateError, StateError
from impls.protocol.jsontext import from_text
from impls.store import naming
from impls.store.checked import check_absent, get_checked, whole_range
from impls.store.entries import SLOTS, block_numbers, open_blocks, open_entries, open_values, stored_name, stored_value
from impls.store.environment import Store, read_meta
from impls.store.packs import beside_packs, packed_between
from impls.store.state import BinState
from impls.store.tables import AFTER, DENSE, SIZE, STATE, bin_key

Entry = tuple[bytes, bytes]
Key = tuple[int, bytes]
"""Bin and name of a key; of a count in a dense bin, its slot in 8 bytes, and nothing for a slot that is not there."""


class KeyEntries(NamedTuple):
    """What an environment has of a key.

    Attributes:
        there: whether the key's bin is in it.
        shape: the version of the pipeline by which the bin's values are what they are, 0 for that of the begin.
        entries: names and values as they are stored, with their checksums: so they travel. Of a count the name has its
            slot and the value 8 bytes.
    """

    there: bool
    shape: int
    entries: list[Entry]

    def opened(self, values: str, key: bytes) -> list[Entry]:
        """Returns (key of an entry, value) in order of the keys; raises CorruptStateError where they are damaged.

        Args:
            values: what entries are, see `impls.reading.forms`.
            key: the key whose they are.
        """
        entries = open_entries(self.entries)
        if values != "processor":
            return entries
        head = naming.TIMERS + naming.key_part(key)  # timers by key: made what they are by time, as in a whole bin
        own = [naming.timer_name(naming.time_of(name[len(head) :]), key) for name, _ in entries if name[:1] == head[:1]]
        return [*own, *(entry for entry in entries if entry[0][:1] != head[:1])]


class Seen(NamedTuple):
    """What an environment has of keys at a worker's last commit.

    Attributes:
        epoch: the last epoch that the worker has ended.
        begun: the last epoch in which it has dropped what it was to drop, before it pulled anything.
        keys: of each key.
    """

    epoch: int
    begun: int
    keys: list[KeyEntries]


class TooLargeError(StateError):
    """What was found is more than there is room for."""


@contextmanager
def looking(path: Path) -> Iterator[lmdb.Transaction]:
    """Opens an environment for reading beside its worker; raises CorruptStateError for none, or one that is cut off."""
    with Store.open(path, readonly=True) as store:
        if store.used_bytes() > (path / "data.mdb").stat().st_size:  # to read beyond its end ends the process
            raise CorruptStateError(f"The state in {path} is truncated.")
        with store.reading(buffers=False) as txn:
            yield txn


def _go_on() -> None:
    """Stands for a pace of those whom nothing limits."""


def look(
    txn: lmdb.Transaction,
    query: str,
    values: str,
    keys: Sequence[Key],
    *,
    most: int | None = None,
    pace: Callable[[], None] = _go_on,
) -> Seen:
    """Returns what an environment has of keys.

    Args:
        txn: shows it.
        query: whose it is to be.
        values: what entries are, see `impls.reading.forms`.
        keys: distinct keys.
        most: bytes that there is room for, `ENTRY_BYTES` beside each name and value; None for any number.
        pace: called before the first and behind each 512 entries; what it raises ends the look.

    Raises:
        CorruptStateError: it is being made, or damaged.
        StateError: it belongs to another query.
        TooLargeError: there is more than `most`.
    """
    pace()
    meta = read_meta(txn)
    if meta is None:
        raise CorruptStateError("The state of the worker is being made.")
    if meta.query != query:
        raise StateError("The state of the worker belongs to another query.")
    raw = get_checked(txn, AFTER)
    begun = -1 if raw is None else int(from_text(raw).get("begun", -1))
    found = _Lookup(txn, values, keys, most, pace)
    return Seen(meta.epoch, begun, [found.of(*key) for key in keys])


_PACE = 512  # entries
ENTRY_BYTES = 100
"""Bytes of an entry beside its name and value, as an object of Python and in the message that has it."""


class _Lookup:
    """Finds entries of keys, up to so many bytes."""

    def __init__(
        self, txn: lmdb.Transaction, values: str, keys: Sequence[Key], most: int | None, pace: Callable[[], None]
    ):
        self._txn, self._values, self._keys, self._left, self._pace = txn, values, keys, most, pace
        self._timers_of: dict[int, dict[bytes, list[Entry]]] = {}
        self._seen = 0

    def of(self, bin_: int, key: bytes) -> KeyEntries:
        # recorded when it has come, or has had an entry
        there = get_checked(self._txn, bin_key(SIZE, bin_)) is not None
        if not there:
            return KeyEntries(False, 0, [])
        return KeyEntries(True, BinState(self._txn, bin_ + 1).shape(bin_), self._entries(bin_, key))

    def _entries(self, bin_: int, key: bytes) -> list[Entry]:
        match self._values:
            case "dense":
                return [self._count_at(bin_, key)] if key else []
            case "keyed":
                return [*self._timers(bin_, key), *self._variables(bin_, key)]
            case "processor":
                return [*self._own_timers(bin_, key), *self._variables(bin_, key)]
        name = stored_name(b"", key)
        return self._between(bin_, name, name + b"\0")

    def _between(self, bin_: int, low: bytes, high: bytes) -> list[Entry]:
        """Returns a bin's entries with low <= name < high, in order."""
        return sorted(self._within(self._items(bin_, low, high)))

    def _items(self, bin_: int, low: bytes, high: bytes) -> Iterator[Entry]:
        """Yields a bin's entries with low <= name < high as they are stored, those in packs behind the others.

        Raises CorruptStateError where damage beside the range hides its entries.
        """
        place, empty = bin_key(STATE, bin_) + low, True
        for item in chain(*self._ranges(bin_, low, high)):
            empty = False
            yield item
            self._seen += 1
            if self._seen % _PACE == 0:
                self._pace()
        if empty:
            check_absent(self._txn, [place, *beside_packs(self._txn, [place])])

    def _ranges(self, bin_: int, low: bytes, high: bytes) -> tuple[Iterable[Entry], Iterable[Entry]]:
        """Returns a bin's entries with low <= name < high, each by itself and in packs."""
        bounds = bin_key(STATE, bin_) + low, bin_key(STATE, bin_) + high
        return whole_range(self._txn, *bounds), packed_between(self._txn, *bounds)

    def _within(self, items: Iterable[Entry]) -> Iterator[Entry]:
        """Yields items as long as there is room."""
        for name, value in items:
            if self._left is not None:
                self._left -= len(name) + len(value) + ENTRY_BYTES
                if self._left < 0:
                    raise TooLargeError("The state that is asked for is too large for an answer.")
            yield name, value

    def _first_between(self, bin_: int, low: bytes, high: bytes) -> bytes | None:
        """Returns the lowest key of a bin's entries with low <= key < high, None when there is none."""
        found = [next((name for name, _ in items), None) for items in self._ranges(bin_, low, high)]
        return min((name[len(bin_key(STATE, bin_)) :] for name in found if name is not None), default=None)

    def _count_at(self, bin_: int, key: bytes) -> Entry:
        """Returns the count at a place of a dense bin, which must be there; raises CorruptStateError otherwise."""
        block, place = divmod(int.from_bytes(key[-8:], "big"), SLOTS)
        name = bin_key(DENSE, bin_) + (block & 0xFFFFFFFF).to_bytes(4, "big")
        raw = self._txn.get(name)
        if raw is None:
            raise CorruptStateError(f"Bin {bin_} lacks a block of counts: its state is damaged.")
        count = int(open_blocks(bytes(raw), block_numbers([name]), f"bin {bin_}")[0, place])
        name = bin_key(STATE, bin_) + key
        return name, stored_value(name, count.to_bytes(8, "little"))

    def _variables(self, bin_: int, key: bytes) -> list[Entry]:
        """Returns the entries of a key's state variables, in order, see `impls.store.naming`.

        Names of variables come from the store: of each family the lowest name tells one, and behind its entries is the
        next.
        """
        part, found = naming.key_part(key), list[Entry]()
        for family in (naming.VALUE, naming.LIST, naming.MAP, naming.ITEM):
            low, high = family, bytes([family[0] + 1])
            while (name := self._first_between(bin_, low, high)) is not None:
                if len(name) < 2:
                    raise CorruptStateError(f"Bin {bin_} has an entry that is of no state variable.")
                label = name[: 2 + name[1]]
                found += self._between(bin_, label + part, naming.after(label + part))
                low = naming.after(label)
        return found

    def _timers(self, bin_: int, key: bytes) -> list[Entry]:
        """Returns the entries of a key's timers; the first key of a bin looks at all timers of the bin."""
        if bin_ not in self._timers_of:
            self._timers_of[bin_] = self._timers_in(bin_)
        return self._timers_of[bin_][naming.key_part(key)]

    def _timers_in(self, bin_: int) -> dict[bytes, list[Entry]]:
        """Returns the entries of timers by what stands for their keys, of the keys that are looked for.

        Every timer's checksum is checked, a few at a time: a name that is damaged may have been one of these keys'.
        """
        found: dict[bytes, list[Entry]] = {naming.key_part(key): [] for own, key in self._keys if own == bin_}
        items, behind_bin = self._items(bin_, naming.TIMER, naming.VALUE), len(bin_key(STATE, bin_))
        while some := list(islice(items, _PACE)):
            open_values([name for name, _ in some], [value for _, value in some])
            for item in some:
                own = found.get(naming.behind_time(item[0][behind_bin:]))
                if own is not None:
                    own += self._within([item])
        return {part: sorted(own) for part, own in found.items()}

    def _own_timers(self, bin_: int, key: bytes) -> list[Entry]:
        """Returns the entries of a key's timers where these are kept by key too, see `naming.own_timer_name`."""
        head = naming.TIMERS + naming.key_part(key)
        return self._between(bin_, head, naming.after(head))
