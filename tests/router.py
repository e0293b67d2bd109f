"""The router as a model, for simulations. The product's runs in the JVM, and a property test compares both."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.protocol.session import Route, Routed
from impls.realtime.blobs import _HEADER, _MAGIC, _NO_TIME


def encode(
    source: int, number: int, tick: int, batch: pa.RecordBatch, *, came_us: int = _NO_TIME, packed_us: int = _NO_TIME
) -> bytes:
    """Returns the bytes of a blob."""
    body = batch.serialize()
    header = _HEADER.pack(_MAGIC, body.size, source, 0, number, tick, came_us, packed_us)
    return b"".join((header, memoryview(body)))


class Router:
    """Packs records by the routing in force."""

    def __init__(self, source: int, slots: int):
        """Makes the router of the F task `source` for `slots` workers; it packs nothing before the first `switch`."""
        self.source = source
        self._sent = [0] * slots
        self._next: dict[int, int] = {}
        self._route: Route | None = None

    def switch(self, route: Route) -> Routed:
        """Routes by `route` from the next blob on and returns how many blobs were packed for each slot before.

        Raises:
            StateError: the routing names a worker for which there is no slot.
        """
        last = int(route.routing.max(initial=-1))
        if last >= len(self._sent):
            raise StateError(f"The routing names worker {last}, but this query has {len(self._sent)} slots.")
        self._route = route
        return Routed(route.tick, tuple(self._sent), tuple(sorted(self._next.items())))

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
        if (route := self._route) is None:
            raise StateError("Records came before the first routing.")
        for part, behind in _next_offsets(records).items():
            self._next[part] = max(self._next.get(part, 0), behind)
        blobs = []
        for slot, part in _parts(records, route.routing) if len(records) else ():
            self._sent[slot] += 1
            blob = encode(self.source, self._sent[slot], route.tick, part, came_us=came_us, packed_us=packed_us)
            blobs.append((slot, blob))
        return blobs


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
