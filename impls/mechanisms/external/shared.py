"""Opening a worker's part of the shared store for an epoch, and moving bins in it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from impls.errors import StateError
from impls.mechanisms.external.client import check_server, forget
from impls.mechanisms.external.store import RedisStore
from impls.mechanisms.external.token import Token
from impls.mechanisms.external.transaction import RedisTransaction
from impls.protocol.plan import Pull
from impls.protocol.report import Report
from impls.store.meta import Meta, new_meta, read_meta, write_meta
from impls.store.state import BinState
from impls.worker.opening import Opened, check_owner
from impls.worker.order import StepOrder

__all__ = ["CACHE_BYTES", "SharedRedis"]

CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class SharedRedis:
    """The store that all workers of a query share: a Redis server, and a cache in each worker's process.

    Attributes:
        url: the server's address.
        cache_bytes: most bytes that a process keeps.
    """

    url: str
    cache_bytes: int = CACHE_BYTES

    def check(self) -> None:
        """Raises UsageError when the server does not answer, or may throw away what it holds."""
        check_server(self.url)

    def forget(self, query: str) -> None:
        """Deletes all that a query has stored."""
        forget(self.url, query)

    def open(self, order: StepOrder, worker: int, report: Report) -> Opened:
        """Opens a worker's state of the epoch before, or of this epoch if that is committed.

        Raises StateError when the store has neither, or is ahead of the epoch or of a later generation; nothing is
        touched then.
        """
        store = RedisStore(self.url, order.query, worker, cache_bytes=self.cache_bytes, report=report)
        txn: Any = store.begin()
        meta = read_meta(txn)
        if meta is not None:
            check_owner(meta, order, f"{store.address}, worker {worker},")
        before = order.written.epoch - 1
        if meta is None or meta.epoch < before:
            meta = self._begin_anew(order, store, meta, report)
        return Opened(store, None, meta)

    def _begin_anew(self, order: StepOrder, store: RedisStore, found: Meta | None, report: Report) -> Meta:
        """Commits the state that the worker has before the first epoch, or before one that it comes back in."""
        before = order.written.epoch - 1
        if not order.first and store.worker not in order.fresh:
            what = "nothing of it" if found is None else f"only epoch {found.epoch}"
            raise StateError(
                f"Worker {store.worker} needs its state of epoch {before}, but the Redis server {store.address} has "
                f"{what}: it has lost data, or is another server."
            )
        meta = new_meta(order.query, store.worker, before, order.generation)
        txn: Any = store.begin()
        for name in txn.own_names():
            txn.delete(name)
        if order.first and store.worker not in order.fresh:
            report.sizes = _create(order, store.worker, txn)
        write_meta(txn, meta)
        txn.commit()
        return meta

    def pull(self, order: StepOrder, pulls: Iterable[Pull], txn: RedisTransaction) -> dict[int, int]:
        """Makes the worker the owner of bins and returns {bin: bytes of its state}, in the order given."""
        written, wanted = order.written, list(pulls)
        if not wanted:
            return {}
        token = Token(written.generation, written.epoch, wanted[0].target)
        return txn.claim({pull.bin: pull.source for pull in wanted}, token)


def _create(order: StepOrder, worker: int, txn: Any) -> tuple[list[int], list[int]]:
    """Creates the worker's bins, one in memory at a time, and returns (bins, bytes)."""
    bins = np.flatnonzero(order.written.plan.routing == worker).tolist()
    state = BinState(txn, order.bins)
    txn.create(bins, Token(order.written.generation, 0, worker))
    for bin_ in bins:
        order.operator.create(bin_, order.bins, state)
        txn.stage()
    sizes = state.write_sizes()
    return [bin_ for bin_, _ in sizes], [size for _, size in sizes]
