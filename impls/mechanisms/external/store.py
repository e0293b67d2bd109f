"""One worker's part of the shared store: where its records lie, how they are read, and how an epoch commits."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from impls.errors import StateError
from impls.mechanisms.external.cache import cache_of
from impls.mechanisms.external.client import (
    COMMIT,
    GUARD,
    LAST_COMMIT,
    READ,
    STAGE,
    connect,
    is_block,
    pack_items,
    pack_names,
    prefix,
    reach,
    script,
    unpack_values,
    words_changed,
)
from impls.mechanisms.external.transaction import RedisTransaction, bin_of
from impls.protocol.report import CacheUse, Report
from impls.store.tables import META, QUEUE, SIZE

_STAGED_S = 3600  # a staged hash outlives an attempt that died by this
_NAMES_AT_ONCE = 50_000


@dataclass
class _Part:
    """What a commit does to one hash: see `COMMIT`."""

    guard: bytes
    new_guard: bytes = b""
    staged: str = ""
    writes: dict[bytes, bytes | None] = field(default_factory=dict)


class RedisStore:
    """A worker's records in Redis; `begin` a transaction, or read what is committed.

    Three kinds of hashes: the worker's (meta record, outbox), its queue, and one per bin (entries, blocks, size record
    and token), which belongs to the worker that its token names.

    Attributes:
        seen: the worker's meta record as stored, b"" for none; a commit is refused when it is another by then.
        cache: entries of the worker's bins in this process.
    """

    def __init__(self, url: str, query: str, worker: int, *, cache_bytes: int, report: Report):
        self._url, self._prefix, self._report = url, prefix(query), report
        self.worker, self._limit = worker, cache_bytes
        with reach(url):
            pipe = connect(url).pipeline(transaction=False)
            pipe.hget(self._worker_key, META)
            pipe.hgetall(self._queue_key)
            meta, self._queue = pipe.execute()
        self.seen: bytes = meta or b""
        self.cache = cache_of(url, query, worker, cache_bytes)
        if self.cache.commit != self.seen:
            self.cache.clear()
            self.cache.commit = self.seen

    @property
    def map_bytes(self) -> int:
        """Returns 0: there is no map that could be full."""
        return 0

    def begin(self) -> RedisTransaction:
        """Begins a transaction; the caller commits or aborts it."""
        return RedisTransaction(self, {META: self.seen, **self._queue} if self.seen else self._queue)

    def begin_inner(self, txn: RedisTransaction) -> None:
        """Returns None: what is written goes into the cache of the process."""

    @contextmanager
    def reading(self, *, buffers: bool = True) -> Iterator[RedisTransaction]:
        """Reads the worker's meta record, outbox and queue as they are now."""
        with reach(self._url):
            pipe = connect(self._url).pipeline(transaction=True)
            pipe.hgetall(self._queue_key)
            pipe.hgetall(self._worker_key)
            queue, own = pipe.execute()
        own.pop(LAST_COMMIT, None)
        yield RedisTransaction(self, {**queue, **own})  # both have a field META

    def used_bytes(self) -> int:
        """Returns the bytes of state on this host, that is in the cache."""
        return self.cache.bytes

    def extend_file(self) -> None:
        """Does nothing: see `Store.extend_file`."""

    def close(self) -> None:
        """Does nothing: the connection is the process's."""

    def count(self, *, hits: int, misses: int) -> None:
        """Counts entries found here and entries to ask the server for."""
        before = self._report.cache
        self._report.cache = CacheUse(before.hits + hits, before.misses + misses)

    def read(self, wanted: Mapping[int, list[bytes]]) -> list[list[bytes | None]]:
        """Returns the values of entries, in the order asked, bin by bin."""
        start, out = time.perf_counter(), list[list[bytes | None]]()
        rest = list(wanted.items())
        while rest:
            number, names = 0, 0
            while number < len(rest) and (number == 0 or names + len(rest[number][1]) <= _NAMES_AT_ONCE):
                names += len(rest[number][1])
                number += 1
            out += self._read(dict(rest[:number]))
            rest = rest[number:]
        self._report.ms["read"] = self._report.ms.get("read", 0.0) + (time.perf_counter() - start) * 1e3
        return out

    def _read(self, wanted: Mapping[int, list[bytes]]) -> list[list[bytes | None]]:
        with reach(self._url):
            answer = script(self._url, READ)(
                keys=[self._bin_key(bin_) for bin_ in wanted], args=[pack_names(names) for names in wanted.values()]
            )
        values = iter(unpack_values(answer))
        return [[next(values) for _ in names] for names in wanted.values()]

    def stage(self, txn: RedisTransaction) -> None:
        """Moves writes to created bins into hashes that stay invisible until the commit renames them."""
        parts: dict[int, list[tuple[bytes, bytes]]] = {}
        for name, value in txn.writes.items():
            bin_ = bin_of(name)
            if bin_ is not None and value is not None and name[0] != SIZE[0]:
                parts.setdefault(bin_, []).append((name, value))
        for bin_, items in parts.items():
            key = txn.staged.setdefault(bin_, f"{self._prefix}staged:{uuid.uuid4().hex}")
            with reach(self._url):
                script(self._url, STAGE)(keys=[key], args=[pack_items(items), _STAGED_S])
            for name, _ in items:
                del txn.writes[name]

    def commit(self, txn: RedisTransaction) -> None:
        """Applies a transaction if the worker's meta record and the tokens of all its bins are as they were read."""
        parts = self._parts(txn)
        args: list[bytes | str] = [uuid.uuid4().bytes]
        for part in parts.values():
            put = pack_items((name, value) for name, value in part.writes.items() if value is not None)
            gone = pack_names(name for name, value in part.writes.items() if value is None)
            args += [part.guard, part.new_guard, put, gone, part.staged]
        with reach(self._url):
            refused = script(self._url, COMMIT)(keys=list(parts), args=args)
        if refused > 0:
            self.cache.clear()
            raise StateError(self._why(list(parts)[refused - 1]))
        self.keep(txn, txn.writes)
        self.cache.commit = self.seen = parts[self._worker_key].new_guard

    def _parts(self, txn: RedisTransaction) -> dict[str, _Part]:
        """Returns what is to become of each hash, the worker's own first."""
        txn.hold(bin_ for name in txn.writes if (bin_ := bin_of(name)) is not None)
        own, queue = _Part(self.seen, txn.writes.get(META) or b""), _Part(b"")
        bins = {b: _Part(held, txn.taken.get(b, b""), txn.staged.get(b, "")) for b, held in sorted(txn.held.items())}
        blocks = {name: value for name, value in txn.writes.items() if value is not None and is_block(name)}
        others = {name: value for name, value in txn.writes.items() if name not in blocks}
        for name, value in {**others, **words_changed(txn.blocks, blocks)}.items():
            bin_ = bin_of(name)
            if bin_ is not None:
                bins[bin_].writes[name] = value
            elif name != META:
                (queue if name[:1] == QUEUE else own).writes[name] = value
        parts = {self._worker_key: own, **({self._queue_key: queue} if queue.writes else {})}
        return parts | {self._bin_key(bin_): part for bin_, part in bins.items()}

    def keep(self, txn: RedisTransaction, entries: Mapping[bytes, bytes | None]) -> None:
        """Puts entries of bins into the cache, and the tokens and sizes of a transaction's bins."""
        for name, value in entries.items():
            if bin_of(name) is not None and name[0] != SIZE[0]:
                self.cache.put(name, value)
        heads = {bin_: (txn.taken.get(bin_, held), txn.size_of(bin_)) for bin_, held in txn.held.items()}
        self.cache.heads.update(heads)
        self.cache.trim(self._limit)

    def _why(self, key: str) -> str:
        """Returns why a commit was refused."""
        if key == self._worker_key:
            return f"Worker {self.worker} was overtaken by another attempt: this one is outdated."
        with reach(self._url):
            token = connect(self._url).hget(key, GUARD)
        held = token.decode() if token else "none"
        bin_ = key.rpartition(":")[2]
        return f"Bin {bin_} is no longer worker {self.worker}'s (its token is {held}): this attempt is outdated."

    @property
    def _worker_key(self) -> str:
        return f"{self._prefix}worker:{self.worker}"

    @property
    def _queue_key(self) -> str:
        return f"{self._prefix}queue:{self.worker}"

    def _bin_key(self, bin_: int) -> str:
        return f"{self._prefix}bin:{bin_}"
