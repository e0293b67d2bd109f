"""Blobs: the records of one worker as a single value, so that Spark's shuffle carries a row instead of thousands.

A blob is a header, one Arrow record batch without its schema, and zeros up to `PAD_BYTES`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from impls.store.records import concat

__all__ = ["PAD_BYTES", "Blob", "decode", "encode", "table_of"]

PAD_BYTES = 8192
"""Least size of a blob: above Spark's limit for an Arrow batch, so that each blob is a batch of its own."""

_HEADER = struct.Struct("<4sIIIqqqq")  # a multiple of 8 bytes, as Arrow reads aligned buffers
_MAGIC = b"RBB1"
_NO_TIME = -1


@dataclass(frozen=True)
class Blob:
    """Records that one F task packed for one worker.

    Attributes:
        source: index of the F task.
        number: counts from 1 for each F and worker in a session.
        tick: the tick by whose routing the records were routed.
        table: the records, with the columns that `impls.spark.columns.prepared` makes.
        came_us: when the records came to F, in the mean; wall clock in µs, -1 when unknown.
        packed_us: when F packed them.
        read_us: when the worker's task read the blob.
    """

    source: int
    number: int
    tick: int
    table: pa.Table
    came_us: int = _NO_TIME
    packed_us: int = _NO_TIME
    read_us: int = _NO_TIME


def table_of(blobs: Sequence[Blob]) -> pa.Table | None:
    """Returns the records of blobs, None for none."""
    return concat([blob.table for blob in blobs]) if blobs else None


def encode(
    source: int, number: int, tick: int, batch: pa.RecordBatch, *, came_us: int = _NO_TIME, packed_us: int = _NO_TIME
) -> bytes:
    """Returns the bytes of a blob."""
    body = batch.serialize()
    header = _HEADER.pack(_MAGIC, body.size, source, 0, number, tick, came_us, packed_us)
    return b"".join((header, memoryview(body), bytes(max(0, PAD_BYTES - len(header) - body.size))))


def decode(raw: bytes, schema: pa.Schema, *, read_us: int = _NO_TIME) -> Blob:
    """Returns the blob of bytes that `encode` made; the table reads from `raw` without a copy.

    Raises:
        ValueError: these are no bytes of a blob.
    """
    if len(raw) < _HEADER.size:
        raise ValueError(f"{len(raw)} bytes are no blob.")
    magic, size, source, _, number, tick, came_us, packed_us = _HEADER.unpack_from(raw)
    if magic != _MAGIC or _HEADER.size + size > len(raw):
        raise ValueError(f"{len(raw)} bytes that begin with {raw[:4]!r} are no blob.")
    batch = pa.ipc.read_record_batch(pa.py_buffer(raw).slice(_HEADER.size, size), schema)
    return Blob(source, number, tick, pa.Table.from_batches([batch]), came_us, packed_us, read_us)
