"""Records and results as columns, their stored form, and queues of records whose bin's state is not here yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.store.checked import open_record, put_checked, whole_range
from impls.store.tables import QUEUE, bin_key, bin_of, bin_range, drop_range, iter_range

TIES = ("rescale_file", "rescale_row")
"""Columns, 64-bit integers, that order the records of files with one (partition, offset), see `impls.spark.columns`."""
FILE, ROW = TIES
"""Column, 64-bit integers: a row's number among those of its record, where one can become several; or in its file."""
PRODUCER, NUMBER = "rescale_producer", "rescale_number"
"""Columns, 64-bit integers, of another query's results: who sent each, below 0, and its number; 0 of other records."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of one epoch in emission order: bins int32 (n,), record keys and payloads as lists of n bytes."""

    bins: NDArray[np.int32]
    keys: list[bytes]
    payloads: list[bytes]

    @classmethod
    def none(cls) -> "Results":
        """Returns no results."""
        return cls(np.empty(0, np.int32), [], [])

    def packed(self) -> bytes:
        """Returns results as numbers and joined bytes, in a tenth of the time that Arrow takes for a turn's."""
        sizes = np.array([len(self.keys), *map(len, self.keys), *map(len, self.payloads)], "<u4")
        parts = (sizes.tobytes(), self.bins.astype("<i4").tobytes(), *self.keys, *self.payloads)
        return b"".join(parts)

    @classmethod
    def unpacked(cls, raw: bytes) -> "Results":
        """Reads what `packed` wrote."""
        total = int.from_bytes(raw[:4], "little")
        sizes = np.frombuffer(raw, "<u4", 2 * total, 4)
        bins = np.frombuffer(raw, "<i4", total, 4 + sizes.nbytes)
        ends = 4 + sizes.nbytes + bins.nbytes + np.cumsum(sizes)
        values = [raw[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
        return cls(bins.astype(np.int32), values[:total], values[total:])

    @classmethod
    def joined(cls, parts: Sequence["Results"]) -> "Results":
        """Returns the results of parts, one behind the other."""
        if not parts:
            return cls.none()
        keys, payloads = ([one for part in parts for one in getattr(part, name)] for name in ("keys", "payloads"))
        return cls(np.concatenate([part.bins for part in parts]), keys, payloads)


def to_bytes(table: pa.Table) -> bytes:
    """Returns a table as one Arrow IPC stream, the same for equal records in whatever pieces they came."""
    if table.num_columns and table.column(0).num_chunks > 1:
        table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(raw: bytes) -> pa.Table:
    """Reads what `to_bytes` wrote."""
    with pa.ipc.open_stream(pa.py_buffer(raw)) as reader:
        return reader.read_all()


def concat(tables: list[pa.Table]) -> pa.Table:
    """Returns the records of tables of one schema, in (partition, offset) order: the order of every operator."""
    table = joined(tables)
    if len(table) < 2:
        return table
    by = ["partition", "offset", *(TIES if _of_files(table) else ())]
    order = np.lexsort([table.column(name).to_numpy() for name in reversed(by)])
    return table if bool((np.diff(order) == 1).all()) else table.take(pa.array(order))


def oldest_first(tables: list[pa.Table]) -> pa.Table:
    """Returns the records of several epochs, the earliest first, in the order in which they would have been applied.

    Offsets grow from epoch to epoch. Modification times need not: a file may come late with an old one.
    """
    return joined(tables) if _of_files(tables[0]) else concat(tables)


def joined(tables: list[pa.Table]) -> pa.Table:
    """Returns the records of tables; what waited in a queue may be of an earlier start, with other columns."""
    alike = all(table.schema.equals(tables[0].schema) for table in tables[1:])
    return pa.concat_tables(tables, promote_options="none" if alike else "permissive")


def has_column(table: pa.Table, name: str) -> bool:
    """Returns whether records have a column, in a tenth of the time of a look at `column_names`."""
    return bool(table.schema.get_field_index(name) >= 0)


def _of_files(table: pa.Table) -> bool:
    return has_column(table, TIES[0])


def counts(bins: NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """Returns (distinct bins, records of each)."""
    number = np.bincount(bins)
    ids = np.flatnonzero(number)
    return ids.tolist(), number[ids].tolist()


Lengths = dict[int, tuple[int, int]]  # by bin: records, bytes
EPOCH_BYTES = 6  # of the number under which a part of a queue is stored


def part_number(stored: bytes) -> int:
    """Returns the number of the commit that queued a part, as `put_queued` takes it."""
    return int.from_bytes(stored[:EPOCH_BYTES], "big")


def put_queued(txn: lmdb.Transaction, bin_: int, stored: bytes) -> None:
    """Writes a part of a queue, as `impls.worker.inputs.queue_input` returned it, behind what the bin's queue holds."""
    put_checked(txn, bin_key(QUEUE, bin_) + stored[:EPOCH_BYTES], stored[EPOCH_BYTES:])


def stored_queues(txn: lmdb.Transaction) -> dict[int, list[bytes]]:
    """Returns {bin: what its queue holds, as `put_queued` takes it} of the queues that are not empty.

    Raises CorruptStateError when a part is damaged, or an item beside the queues, which may hide some.
    """
    queues: dict[int, list[bytes]] = {}
    for name, stored in whole_range(txn, QUEUE, bytes([QUEUE[0] + 1])):
        queues.setdefault(bin_of(name), []).append(name[3:] + open_record(name, stored))
    return queues


def queued_records(stored: bytes) -> pa.Table:
    """Returns the records of a part of a queue, as `put_queued` takes it."""
    return from_bytes(stored[EPOCH_BYTES + 4 :])


def take_queues(txn: lmdb.Transaction, bins: Iterable[int]) -> list[pa.Table]:
    """Removes the queues of bins and returns their records."""
    return [queued_records(stored) for bin_ in bins for _, stored in take_parts(txn, bin_)]


def take_parts(txn: lmdb.Transaction, bin_: int) -> list[tuple[bytes, bytes]]:
    """Removes a bin's queue and returns (name, what `put_queued` has put) of its parts.

    Raises CorruptStateError when one is damaged, or when not as many are there to be removed as to be read.
    """
    low, high = bin_range(QUEUE, bin_)
    parts = [(bytes(name), open_record(bytes(name), bytes(value))) for name, value in iter_range(txn, low, high)]
    if drop_range(txn, low, high) != len(parts):
        raise CorruptStateError(f"Parts of the queue of bin {bin_} are out of order: the state is damaged.")
    return [(name, name[3:] + stored) for name, stored in parts]
