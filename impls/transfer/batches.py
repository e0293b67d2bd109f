"""A bin's stored items as Arrow batches and back: columns name and value; a bin ends with its size record."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from impls.errors import CorruptStateError
from impls.store.tables import SIZE

__all__ = ["SCHEMA", "batch_of", "is_size", "items_of", "packed", "runs_of"]

SCHEMA = pa.schema([pa.field("name", pa.large_binary(), False), pa.field("value", pa.large_binary(), False)])


def packed(items: Iterable[tuple[bytes, bytes]], limit: int) -> Iterator[pa.RecordBatch]:
    """Yields batches of about `limit` bytes with all items; one larger than that comes alone.

    One item after the other, so that no more than a batch and an item are in memory.
    """
    names: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for name, value in items:
        size += len(name) + len(value)
        if size > limit and names:
            yield batch_of(names, values)
            names, values, size = [], [], len(name) + len(value)
        names.append(name)
        values.append(value)
    if names:
        yield batch_of(names, values)


def batch_of(names: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    """Returns a batch with items."""
    return pa.RecordBatch.from_arrays([_column(names), _column(values)], schema=SCHEMA)


def _column(values: Sequence[bytes]) -> pa.Array:
    offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers, null_count=0)


def items_of(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    """Returns a batch's items; raises CorruptStateError when it is none of `batch_of`."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptStateError(f"A message with bins is damaged: {error}.") from error
    if not batch.schema.equals(SCHEMA) or any(column.null_count for column in batch.columns):
        raise CorruptStateError("A message with bins has the wrong columns.")
    return list(zip(*map(_values, batch.columns), strict=True))


def _values(column: pa.Array) -> list[bytes]:
    _, offsets, data = column.buffers()
    if not len(column):
        return []
    ends: list[int] = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1].tolist()
    raw = b"" if data is None else data.to_pybytes()
    return [raw[begin:end] for begin, end in pairwise(ends)]


def runs_of(items: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """Yields items in lists that are of one bin and table each."""
    heads = np.array([name[:3] for name, _ in items], "S3")
    cuts = [0, *(np.flatnonzero(heads[1:] != heads[:-1]) + 1).tolist(), len(items)]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield items[begin:end]


def is_size(run: Sequence[tuple[bytes, bytes]]) -> bool:
    """Returns whether a run is a size record, with which a bin ends."""
    return run[0][0][:1] == SIZE
