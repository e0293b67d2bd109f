"""Blobs, the records of one worker as a single value, and how they wait for the worker's next commit.

A blob is a header and one Arrow record batch without its schema. The routers make them, in the JVM
(`impls/spark/realtime/Packer.java`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from impls.errors import StateError
from impls.realtime.wire import HEADER, MAGIC
from impls.store.records import concat

_NO_TIME = -1


@dataclass(frozen=True)
class Blob:
    """Records that one F task packed for one worker.

    Attributes:
        source: index of the F task.
        number: counts from 1 for each F and worker in a session.
        epoch: the epoch by whose routing the records were routed.
        table: the records, with the columns that `impls.spark.columns.prepared` makes.
        came_us: when the records came to F, in the mean; wall clock in µs, -1 when unknown.
        packed_us: when F packed them.
        read_us: when the worker's task read the blob.
    """

    source: int
    number: int
    epoch: int
    table: pa.Table
    came_us: int = _NO_TIME
    packed_us: int = _NO_TIME
    read_us: int = _NO_TIME


def table_of(blobs: Sequence[Blob]) -> pa.Table | None:
    """Returns the records of blobs, None for none."""
    return concat([blob.table for blob in blobs]) if blobs else None


def decode(raw: bytes, schema: pa.Schema, *, read_us: int = _NO_TIME) -> Blob:
    """Returns the blob that a router made; the table reads from `raw` without a copy.

    Raises:
        ValueError: these are no bytes of a blob.
    """
    if len(raw) < HEADER.size:
        raise ValueError(f"{len(raw)} bytes are not a valid blob.")
    magic, size, source, _, number, epoch, came_us, packed_us = HEADER.unpack_from(raw)
    if magic != MAGIC or HEADER.size + size > len(raw):
        raise ValueError(f"{len(raw)} bytes that begin with {raw[:4]!r} are not a valid blob.")
    batch = pa.ipc.read_record_batch(pa.py_buffer(raw).slice(HEADER.size, size), schema)
    return Blob(source, number, epoch, pa.Table.from_batches([batch]), came_us, packed_us, read_us)


_RECORDS = 32_768  # of one commit at most: what waits is worked off in turns that others can see


class Intake:
    """put() as blobs come; next() for a commit, then count() when it is done.

    Attributes:
        applied: by router, the number of its last blob that is committed.
    """

    def __init__(self, worker: int):
        self._worker = worker
        self._waiting: deque[Blob] = deque()
        self.applied: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, blobs: Sequence[Blob]) -> None:
        """Takes blobs in the order in which they came."""
        self._waiting += blobs

    def has(self, epoch: int) -> bool:
        """Returns whether the next blob is of an epoch, or of an earlier one."""
        return bool(self._waiting) and self._waiting[0].epoch <= epoch

    def next(self, epoch: int, window: int = 2 * _RECORDS) -> list[Blob]:
        """Takes out the blobs of the next commit: of epochs up to this one, and not more than a commit may have.

        That is half of the records that may be on their way to the worker, so that the rest comes during the commit.
        """
        chosen: list[Blob] = []
        records, most = 0, min(window // 2, _RECORDS)
        while self.has(epoch) and records < most:
            chosen.append(self._waiting.popleft())
            records += len(chosen[-1].table)
        return chosen

    def count(self, blobs: Sequence[Blob]) -> None:
        """Takes in that a commit is committed; raises StateError when a blob before one of its blobs is missing."""
        for blob in blobs:
            before = self.applied.get(blob.source, 0)
            if blob.number != before + 1:
                raise StateError(
                    f"Worker {self._worker} got blob {blob.number} of router {blob.source} after {before}."
                )
            self.applied[blob.source] = blob.number
