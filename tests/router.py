"""The router as a model, for simulations. The product's runs in the JVM, and a property test compares both."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.protocol.session import Route, Routed
from impls.realtime.blobs import _NO_TIME
from impls.realtime.wire import HEADER, MAGIC
from impls.store.records import ROW


def encode(
    source: int, number: int, epoch: int, batch: pa.RecordBatch, *, came_us: int = _NO_TIME, packed_us: int = _NO_TIME
) -> bytes:
    """Returns the bytes of a blob."""
    body = batch.serialize()
    header = HEADER.pack(MAGIC, body.size, source, 0, number, epoch, came_us, packed_us)
    return b"".join((header, memoryview(body)))


class Router:
    """Packs records by the routing in force."""

    def __init__(self, source: int, slots: int):
        """Makes the router of the F task `source` for `slots` workers; it packs nothing before the first `switch`."""
        self.source = source
        self._sent = [0] * slots
        self._last: dict[int, tuple[int, int]] = {}  # by input partition: offset and row
        self._several = False  # a record can have several rows
        self._route: Route | None = None

    @property
    def is_last(self) -> bool:
        """Whether it sends nothing more, as the query ends with the epoch."""
        return self._route is not None and self._route.last

    def switch(self, route: Route) -> Routed:
        """Routes by `route` from the next blob on and returns how many blobs were packed for each slot before.

        Raises:
            StateError: the routing names a worker for which there is no slot.
        """
        last = int(route.routing.max(initial=-1))
        if last >= len(self._sent):
            raise StateError(f"The routing names worker {last}, but this query has {len(self._sent)} slots.")
        self._route = route
        behind = 0 if self._several else 1
        return Routed(
            route.epoch, tuple(self._sent), tuple((part, at + behind) for part, (at, _) in sorted(self._last.items()))
        )

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
        records = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        if (route := self._route) is None:
            raise StateError("Records came before the first routing.")
        records = self._numbered(records)
        records = records.filter(records.column(0).is_valid())  # the bin
        blobs = []
        for slot, part in _parts(records, route.routing) if len(records) else ():
            self._sent[slot] += 1
            blob = encode(self.source, self._sent[slot], route.epoch, part, came_us=came_us, packed_us=packed_us)
            blobs.append((slot, blob))
        return blobs

    def _numbered(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with their numbers among those of their records that have a bin, where there can be several."""
        self._several = ROW in records.schema.names
        numbers = []
        rows = zip(*(records.column(name).to_pylist() for name in ("bin", "partition", "offset")), strict=True)
        for bin_, part, offset in rows:
            before, row = self._last.get(part, (-1, -1))
            if offset < before or (offset == before and not self._several):
                raise StateError(f"Input partition {part} has offset {offset} behind offset {before}")
            row = row if offset == before else -1
            self._last[part] = offset, row if bin_ is None else row + 1
            numbers.append(self._last[part][1])
        if not self._several:
            return records
        return records.set_column(records.schema.get_field_index(ROW), ROW, pa.array(numbers, pa.int64()))


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
