"""Queues of records whose bin's state is not here yet: durable, per bin, in arrival order."""

from collections.abc import Iterable

import lmdb
import numpy as np
import pyarrow as pa

from impls.runtime.records import from_bytes, to_bytes
from impls.runtime.state import drop_range, iter_range
from impls.runtime.store import QUEUE, bin_key, bin_range

__all__ = ["add_to_queues", "queue_lengths", "take_queues"]


def add_to_queues(txn: lmdb.Transaction, epoch: int, table: pa.Table) -> None:
    """Appends records to the queues of their bins."""
    bins = table.column("bin").to_numpy()
    for bin_ in np.unique(bins).tolist():
        part = table.filter(pa.array(bins == bin_))
        value = len(part).to_bytes(4, "little") + to_bytes(part)
        txn.put(bin_key(QUEUE, bin_) + epoch.to_bytes(6, "big"), value)


def queue_lengths(txn: lmdb.Transaction) -> tuple[dict[int, tuple[int, int]], int]:
    """Returns ({bin: (records, bytes)} of the non-empty queues, bytes of all queues)."""
    lengths: dict[int, tuple[int, int]] = {}
    for key, value in iter_range(txn, QUEUE, bytes([QUEUE[0] + 1])):
        bin_ = int.from_bytes(key[1:3], "big")
        records, size = lengths.get(bin_, (0, 0))
        lengths[bin_] = (records + int.from_bytes(value[:4], "little"), size + len(value))
    return lengths, sum(size for _, size in lengths.values())


def take_queues(txn: lmdb.Transaction, bins: Iterable[int]) -> list[pa.Table]:
    """Removes the queues of bins and returns their records."""
    tables = []
    for bin_ in bins:
        low, high = bin_range(QUEUE, bin_)
        tables += [from_bytes(bytes(value[4:])) for _, value in iter_range(txn, low, high)]
        drop_range(txn, low, high)
    return tables
