"""An epoch's reads and writes of one worker on the shared store, in the form in which the worker core asks for them.

It offers what the core uses of an LMDB transaction. Writes are kept until the commit; entries of bins are read through
the cache. A Redis hash has no order, so ranges exist only of the worker's own tables, above all its queue: a search for
the neighbours of an entry, or for the entries of a bin that is dropped, finds none.

A fencing token says who may write a bin, and since which epoch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from impls.errors import StateError
from impls.mechanisms.external.cache import Cache
from impls.mechanisms.external.client import GUARD, is_block
from impls.store.bins import read_size
from impls.store.tables import DENSE, SIZE, STATE, bin_key


@dataclass(frozen=True, slots=True, order=True)
class Token:
    """The right to write one bin; of two the larger one is the later.

    It follows from the plan that moved the bin alone, so every attempt of an epoch derives the same.

    Attributes:
        generation: that of the plan.
        epoch: the epoch in which the bin moved, 0 for where it was created.
        worker: the owner from then on.
    """

    generation: int
    epoch: int
    worker: int

    def encode(self) -> bytes:
        """Returns the token as stored."""
        return b"%d.%d.%d" % (self.generation, self.epoch, self.worker)

    @classmethod
    def decode(cls, raw: bytes) -> "Token":
        """Reads what `encode` wrote."""
        return cls(*map(int, raw.split(b".")))


_OF_BINS = (STATE[0], SIZE[0], DENSE[0])  # tables whose entries move with their bin


def bin_of(name: bytes) -> int | None:
    """Returns the bin in whose hash an entry lies, None for the worker's own tables."""
    return int.from_bytes(name[1:3], "big") if name[0] in _OF_BINS else None


class EntryServer(Protocol):
    """What a transaction asks of the store that began it, see `RedisStore`."""

    worker: int
    cache: Cache

    def count(self, *, hits: int, misses: int) -> None:
        """Counts entries found in the cache and entries to ask the server for."""

    def read(self, wanted: Mapping[int, list[bytes]]) -> list[list[bytes | None]]:
        """Returns the values of entries, in the order asked, bin by bin."""

    def stage(self, txn: "RedisTransaction") -> None:
        """Sends a transaction's writes to created bins ahead of the commit."""

    def commit(self, txn: "RedisTransaction") -> None:
        """Applies a transaction, or none of it."""

    def keep(self, txn: "RedisTransaction", entries: Mapping[bytes, bytes | None]) -> None:
        """Puts entries of bins into the cache."""


class RedisTransaction:
    """Begin with RedisStore.begin() or .reading(), then read and write, then commit() or abort().

    Attributes:
        writes: what the commit applies, None deletes.
        held: tokens of the bins touched, as they must still be at the commit; b"" for a bin that is created.
        taken: new tokens of bins that are created or claimed.
        staged: hashes that become those of created bins.
        blocks: dense blocks as the store has them, of those that were read.
    """

    def __init__(self, store: EntryServer, own: Mapping[bytes, bytes]):
        self._store, self._own = store, own
        self.writes: dict[bytes, bytes | None] = {}
        self.held: dict[int, bytes] = {}
        self.taken: dict[int, bytes] = {}
        self.staged: dict[int, str] = {}
        self.blocks: dict[bytes, bytes] = {}
        self._sizes: dict[bytes, bytes | None] = {}

    def get(self, name: bytes) -> bytes | None:
        """Returns one record, None for an absent one."""
        return self.fetch([name])[0]

    def put(self, name: bytes, value: bytes) -> None:
        """Writes one record."""
        self.writes[name] = value

    def delete(self, name: bytes) -> None:
        """Deletes one record; the size record of a bin goes only where its state does, that is nowhere."""
        if name[0] != SIZE[0]:
            self.writes[name] = None

    def cursor(self) -> "Cursor":
        """Returns a cursor that stands nowhere."""
        return Cursor(self)

    def commit(self) -> None:
        """Applies all writes at once; raises StateError when the worker or a bin has moved on, and applies none."""
        self._store.commit(self)

    def abort(self) -> None:
        """Forgets all writes, and what the cache may have taken in of bins that were not this worker's yet."""
        self.writes.clear()
        self._store.cache.clear()

    def fetch(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Returns the values of records, asking the store once for all that are neither written nor cached."""
        values: dict[bytes, bytes | None] = {}
        wanted: dict[int, list[bytes]] = {}
        hits = 0
        for name in names:
            bin_ = bin_of(name)
            if bin_ is None or name in self.writes or self.held.get(bin_) == b"":
                values[name] = self.writes.get(name, self._own.get(name))
            elif name[0] == SIZE[0]:
                wanted |= {} if self._hold_cached(bin_) else {bin_: wanted.get(bin_, [])}
            elif self._hold_cached(bin_) and (value := self._store.cache.get(name)) is not None:
                values[name] = value
                hits += 1
            else:
                wanted.setdefault(bin_, []).append(name)
        self._store.count(hits=hits, misses=sum(map(len, wanted.values())))
        values |= self._read(wanted)
        for name, value in values.items():
            if is_block(name) and value is not None and name not in self.writes:
                self.blocks[name] = value
        return [self._sizes[name] if name not in values else values[name] for name in names]

    def hold(self, bins: Iterable[int]) -> None:
        """Makes sure that the tokens of bins are known and are this worker's."""
        self._read({bin_: [] for bin_ in bins if not self._hold_cached(bin_)})

    def own_names(self) -> list[bytes]:
        """Returns the names of the worker's own tables in order."""
        names = {name for name in self.writes if bin_of(name) is None} | set(self._own)
        return sorted(name for name in names if self.writes.get(name, b"") is not None)

    def create(self, bins: Iterable[int], token: Token) -> None:
        """Takes bins that no worker has created yet for this worker."""
        for bin_ in bins:
            self.held[bin_], self.taken[bin_] = b"", token.encode()

    def stage(self) -> None:
        """Sends what was written to created bins ahead of the commit, which is the first to show it."""
        self._store.stage(self)

    def claim(self, sources: Mapping[int, int], token: Token) -> dict[int, int]:
        """Takes bins over from their owners and returns {bin: bytes of its state}; none of these is moved.

        Args:
            sources: bin -> its owner so far.
            token: this worker's from now on.
        """
        records = self._store.read({bin_: [GUARD, bin_key(SIZE, bin_)] for bin_ in sources})
        for (bin_, source), (guard, size) in zip(sources.items(), records, strict=True):
            held = _decode(bin_, guard)
            if held.worker != source or held >= token:
                raise _moved_on(bin_, held)
            self._hold(bin_, held.encode(), size)
            self.taken[bin_] = token.encode()
        self._store.cache.forget(sources)
        this: Any = self
        return {bin_: read_size(this, bin_)[1] for bin_ in sources}

    def size_of(self, bin_: int) -> bytes | None:
        """Returns the size record of a bin touched as it is after this transaction."""
        name = bin_key(SIZE, bin_)
        return self.writes.get(name, self._sizes.get(name))

    def _hold(self, bin_: int, token: bytes, size: bytes | None) -> None:
        self.held[bin_], self._sizes[bin_key(SIZE, bin_)] = token, size

    def _hold_cached(self, bin_: int) -> bool:
        """Relies on a cached token, which the commit checks; returns whether the bin's token is known now."""
        if bin_ not in self.held and bin_ in self._store.cache.heads:
            self._hold(bin_, *self._store.cache.heads[bin_])
        return bin_ in self.held

    def _read(self, wanted: Mapping[int, list[bytes]]) -> dict[bytes, bytes | None]:
        """Reads entries, and with the first of a bin its token and size record."""
        if not wanted:
            return {}
        new = {bin_ for bin_ in wanted if bin_ not in self.held}
        asked = {b: [GUARD, bin_key(SIZE, b), *names] if b in new else names for b, names in wanted.items()}
        values_found: dict[bytes, bytes | None] = {}
        for (bin_, names), values in zip(wanted.items(), self._store.read(asked), strict=True):
            if bin_ in new:
                held = _decode(bin_, values[0])
                if held.worker != self._store.worker:
                    raise _moved_on(bin_, held)
                self._hold(bin_, held.encode(), values[1])
                values = values[2:]  # noqa: PLW2901
            values_found |= zip(names, values, strict=True)
        self._store.keep(self, values_found)
        return values_found


class Cursor:
    """What the worker core asks of an LMDB cursor: many entries at once, and the worker's own records in order."""

    def __init__(self, txn: RedisTransaction):
        self._txn, self._names, self._at = txn, list[bytes](), 0

    def getmulti(self, names: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Returns (name, value) of those that are there, in the order asked."""
        pairs = zip(names, self._txn.fetch(names), strict=True)
        return [(name, value) for name, value in pairs if value is not None]

    def putmulti(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Writes (name, value) pairs."""
        self._txn.writes.update(items)

    def set_range(self, low: bytes) -> bool:
        """Goes to the first own record from `low` on and returns whether there is one; see the module."""
        self._at, self._names = 0, []
        if bin_of(low) is None:
            self._names = [name for name in self._txn.own_names() if name >= low]
        return bool(self._names)

    def key(self) -> bytes:
        """Returns the name of the record it stands at."""
        return self._names[self._at] if self._at < len(self._names) else b""

    def value(self) -> bytes:
        """Returns the record it stands at."""
        return self._txn.get(self.key()) or b""

    def iternext(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields (name, value) from where it stands on."""
        return ((name, self._txn.get(name) or b"") for name in self._names[self._at :])

    def delete(self) -> bool:
        """Deletes the record it stands at, goes to the next and returns whether there is one."""
        self._txn.delete(self.key())
        self._at += 1
        return self._at < len(self._names)

    def prev(self) -> bool:
        """Returns False: see the module."""
        return False

    def last(self) -> bool:
        """Returns False: see the module."""
        return False


def _decode(bin_: int, guard: bytes | None) -> Token:
    if guard is None:
        raise StateError(f"The store has no state of bin {bin_}: it was lost, or this is another server.")
    return Token.decode(guard)


def _moved_on(bin_: int, held: Token) -> StateError:
    return StateError(
        f"Bin {bin_} belongs to worker {held.worker} since epoch {held.epoch} of generation {held.generation}: this "
        "attempt is outdated."
    )
