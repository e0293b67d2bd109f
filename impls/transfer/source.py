"""Whether an environment may hand over bins in an epoch, and their items as messages."""

from collections.abc import Iterator
from typing import Any

import lmdb
import pyarrow as pa

from impls.store.bins import read_size, size_record
from impls.store.meta import read_meta
from impls.store.moving import moving_packs
from impls.store.pages import Leaves
from impls.store.tables import PACKS, STATE, STATE_TABLES, bin_range
from impls.transfer.batches import packed
from impls.transfer.ticket import RefusedError, Ticket

__all__ = ["batches_of", "check_source"]


def check_source(view: lmdb.Transaction, *, query: str, epoch: int) -> None:
    """Raises RefusedError unless an environment is of the query, and at the end of the epoch or of the one before.

    The old owner of a bin does not touch it in the epoch in which it is pulled, so both have the same state of it.
    """
    meta = read_meta(view)
    if meta is None or meta.query != query:
        raise RefusedError("foreign")
    if meta.epoch > epoch:
        raise RefusedError("ahead", f"its state is of epoch {meta.epoch}, not {epoch}: this attempt is outdated")
    if meta.epoch < epoch - 1:
        raise RefusedError("old", f"its state is of epoch {meta.epoch}, not {epoch - 1}")


def batches_of(
    view: lmdb.Transaction, ticket: Ticket, batch_bytes: int, leaves: Leaves | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the ticket's bins as `copy_bin` would copy them, each with its size record behind its items.

    Args:
        view: a transaction that reads without buffers: as buffers, small items take twice the time.
        ticket: which bins, in which order.
        batch_bytes: about what a batch has.
        leaves: the pages that `view` shows.
    """
    return packed((item for bin_ in ticket.bins for item in _items(view, bin_, leaves)), batch_bytes)


def _items(view: lmdb.Transaction, bin_: int, leaves: Leaves | None) -> Iterator[tuple[bytes, bytes]]:
    packs, whole = moving_packs(view, bin_, read_size(view, bin_)[0], leaves)
    for table in STATE_TABLES:
        if table == PACKS:
            yield from packs
        elif table != STATE or not whole:
            yield from _stored(view, *bin_range(table, bin_))
    yield size_record(view, bin_)


def _stored(view: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
    cursor = view.cursor()
    items: Iterator[Any] = cursor.iternext() if cursor.set_range(low) else iter(())
    for item in items:
        if item[0] >= high:
            break
        yield item
