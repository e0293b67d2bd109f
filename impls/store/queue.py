"""Queues of records whose bin's state is not here yet: durable, per bin, in arrival order."""

from collections.abc import Iterable

import lmdb
import numpy as np
import pyarrow as pa

from impls.store.checked import get_checked, open_record, put_checked
from impls.store.records import from_bytes, to_bytes
from impls.store.tables import QUEUE, bin_key, bin_range, drop_range, iter_range

Lengths = dict[int, tuple[int, int]]  # by bin: records, bytes


def add_to_queues(txn: lmdb.Transaction, epoch: int, table: pa.Table) -> list[tuple[int, bytes | None]]:
    """Appends records to the queues of their bins and returns (bin, stored records)."""
    bins = table.column("bin").to_numpy()
    added: list[tuple[int, bytes | None]] = []
    for bin_ in np.unique(bins).tolist():
        part = table.filter(pa.array(bins == bin_))
        value = epoch.to_bytes(6, "big") + len(part).to_bytes(4, "little") + to_bytes(part)
        put_queued(txn, bin_, value)
        added.append((bin_, value))
    return added


def put_queued(txn: lmdb.Transaction, bin_: int, stored: bytes) -> None:
    """Writes stored records, as `add_to_queues` returned them, behind what the bin's queue holds."""
    put_checked(txn, bin_key(QUEUE, bin_) + stored[:6], stored[6:])


def queue_lengths(txn: lmdb.Transaction) -> Lengths:
    """Returns {bin: (records, bytes)} of the non-empty queues."""
    lengths: Lengths = {}
    for key, value in iter_range(txn, QUEUE, bytes([QUEUE[0] + 1])):
        bin_ = int.from_bytes(key[1:3], "big")
        records, size = lengths.get(bin_, (0, 0))
        stored = open_record(bytes(key), bytes(value))
        lengths[bin_] = (records + int.from_bytes(stored[:4], "little"), size + len(value))
    return lengths


def stored_queues(txn: lmdb.Transaction) -> dict[int, list[bytes]]:
    """Returns {bin: what its queue holds, as `put_queued` takes it} of the queues that are not empty."""
    found: dict[int, list[bytes]] = {}
    for key, value in iter_range(txn, QUEUE, bytes([QUEUE[0] + 1])):
        name = bytes(key)
        found.setdefault(int.from_bytes(name[1:3], "big"), []).append(name[3:] + open_record(name, bytes(value)))
    return found


def queued_records(stored: bytes) -> pa.Table:
    """Returns the records of a part of a queue, as `put_queued` takes it."""
    return from_bytes(stored[10:])


def take_queues(txn: lmdb.Transaction, bins: Iterable[int]) -> list[pa.Table]:
    """Removes the queues of bins and returns their records."""
    tables = []
    for bin_ in bins:
        low, high = bin_range(QUEUE, bin_)
        names = [bytes(name) for name, _ in iter_range(txn, low, high)]
        tables += [from_bytes((get_checked(txn, name) or b"")[4:]) for name in names]
        drop_range(txn, low, high)
    return tables
