"""Blobs, the records of one worker as a single value: packed by a router, and waiting for a worker's next turn.

A blob is a header, one Arrow record batch without its schema, and zeros up to `PAD_BYTES`.
"""

import struct
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.protocol.session import Route, Routed
from impls.store.records import concat

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


_RECORDS = 32_768  # of one turn at most: what waits is worked off in turns that others can see


class Intake:
    """put() as blobs come; next() for a turn, then count() when it is committed, or give_back().

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

    def has(self, tick: int) -> bool:
        """Returns whether the next blob is of a tick, or of an earlier one."""
        return bool(self._waiting) and self._waiting[0].tick <= tick

    def next(self, tick: int, window: int = 2 * _RECORDS) -> list[Blob]:
        """Takes out the blobs of the next turn: of ticks up to this one, and not more than a turn may have.

        That is half of the records that may be on their way to the worker, so that the rest comes during the turn.
        """
        chosen: list[Blob] = []
        records, most = 0, min(window // 2, _RECORDS)
        while self.has(tick) and records < most:
            chosen.append(self._waiting.popleft())
            records += len(chosen[-1].table)
        return chosen

    def give_back(self, blobs: Sequence[Blob]) -> None:
        """Puts the blobs of a turn that came to nothing in front of the others."""
        self._waiting.extendleft(reversed(blobs))

    def count(self, blobs: Sequence[Blob]) -> None:
        """Takes in that a turn is committed; raises StateError when a blob before one of its blobs is missing."""
        for blob in blobs:
            before = self.applied.get(blob.source, 0)
            if blob.number != before + 1:
                raise StateError(
                    f"Worker {self._worker} got blob {blob.number} of router {blob.source} after {before}."
                )
            self.applied[blob.source] = blob.number


class Router:
    """Packs records by the routing in force; all methods may be called from any thread."""

    def __init__(self, source: int, slots: int):
        """Makes the router of the F task `source` for `slots` workers; it packs nothing before the first `switch`."""
        self.source = source
        self._lock = threading.Lock()
        self._sent = [0] * slots
        self._records = np.zeros(slots, np.int64)
        self._next: dict[int, int] = {}
        self._route: Route | None = None

    def switch(self, route: Route) -> Routed:
        """Routes by `route` from the next blob on and returns how many blobs were packed for each slot before.

        Raises:
            StateError: the routing names a worker for which there is no slot.
        """
        last = int(route.routing.max(initial=-1))
        with self._lock:
            if last >= len(self._sent):
                raise StateError(f"The routing names worker {last}, but this query has {len(self._sent)} slots.")
            self._route = route
            return Routed(route.tick, tuple(self._sent), tuple(self._next.items()))

    def admitted(self, records: pa.RecordBatch, room: NDArray[np.int64]) -> int:
        """Returns how many of the first records can be packed, so that no slot gets more than it has room for.

        Args:
            records: as for `pack`, all with a bin.
            room: records that each slot may be given, shape (slots,).
        """
        with self._lock:
            to = self._in_force().routing[records.column(0).to_numpy()]
        left = np.maximum(room, 0)  # a window that has shrunk is overdrawn, also where nothing goes now
        counts = np.bincount(to, minlength=len(room))
        first = [np.flatnonzero(to == slot)[left[slot]] for slot in np.flatnonzero(counts > left)]
        return int(min(first, default=len(records)))

    def packed(self) -> NDArray[np.int64]:
        """Returns how many records were packed for each slot since the last call, shape (slots,)."""
        with self._lock:
            found, self._records = self._records, np.zeros_like(self._records)
            return found

    def pack(
        self, batches: Sequence[pa.RecordBatch], *, came_us: int = -1, packed_us: int = -1
    ) -> list[tuple[int, bytes]]:
        """Returns a (slot, blob) for every worker that has records in the batches, in the order of slots.

        Rows without a bin are left out. A bin's records keep their order.

        Args:
            batches: records with the columns of `impls.spark.columns.prepared`.
            came_us: when the records came, for the blobs' headers.
            packed_us: when they are packed, for the same.

        Raises:
            StateError: no routing has come yet.
        """
        records = _records(batches)
        with self._lock:
            route = self._in_force()
            self._next |= _next_offsets(records)
            blobs = []
            for slot, part in _parts(records, route.routing) if len(records) else ():
                self._sent[slot] += 1
                self._records[slot] += len(part)
                blob = encode(self.source, self._sent[slot], route.tick, part, came_us=came_us, packed_us=packed_us)
                blobs.append((slot, blob))
            return blobs

    def _in_force(self) -> Route:
        if self._route is None:
            raise StateError("Records came before the first routing.")
        return self._route


def _parts(records: pa.RecordBatch, routing: NDArray[np.int32]) -> list[tuple[int, pa.RecordBatch]]:
    """Returns (worker, its records) of the workers that have some, ascending."""
    to = routing[records.column(0).to_numpy()]
    counts = np.bincount(to)
    slots = np.flatnonzero(counts)
    if len(slots) == 1:
        return [(int(slots[0]), records)]
    ordered = records.take(pa.array(np.argsort(to, kind="stable")))
    ends = np.cumsum(counts)
    return [(slot, ordered.slice(int(ends[slot] - counts[slot]), int(counts[slot]))) for slot in slots.tolist()]


def _next_offsets(records: pa.RecordBatch) -> dict[int, int]:
    """Returns the offset behind the last record of each partition of the input."""
    partitions, offsets = (records.column(name).to_numpy() for name in ("partition", "offset"))
    return {int(part): int(offsets[partitions == part].max()) + 1 for part in np.unique(partitions)}


def _records(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns one batch of all rows that have a bin, which is the first column."""
    kept = [batch.filter(batch.column(0).is_valid()) if batch.column(0).null_count else batch for batch in batches]
    return kept[0] if len(kept) == 1 else pa.concat_batches(kept)
