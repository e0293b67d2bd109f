"""Whether an environment may hand over bins in an epoch, and their items as messages."""

from collections.abc import Iterator

import lmdb
import pyarrow as pa

from impls.store.bins import iter_bin, size_record
from impls.store.meta import read_meta
from impls.transfer.batches import Items, packed
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


def batches_of(view: lmdb.Transaction, ticket: Ticket, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields the ticket's bins as `copy_bin` would copy them, each with its size record behind its items."""

    def chunks() -> Iterator[Items]:
        for bin_ in ticket.bins:
            yield from iter_bin(view, bin_)
            yield [size_record(view, bin_)]

    return packed(chunks(), batch_bytes)
