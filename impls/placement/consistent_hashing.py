"""Consistent hashing: workers and bins hash onto a ring, a bin belongs to the next worker on it.

Karger et al., "Consistent hashing and random trees", STOC 1997, with virtual nodes as in Dynamo (DeCandia et al., SOSP
2007, section 4.2).
"""

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.placement import Placing
from impls.store.hashing import hash_int64

_NODES_MAX = 4096
_WORKER = np.int64(1 << 20)  # apart from each other by more than the virtual nodes of one
_BIN = np.int64(1 << 62)


def place(placing: Placing, *, virtual_nodes: int = 64, seed: int = 1) -> NDArray[np.int32]:
    """Returns each bin's worker on the ring; the current assignment plays no part.

    Guarantees that a worker's places depend on its number and the seed alone: when workers are added, bins move to the
    new ones only, when workers go, only their bins move. The counts are not balanced: with v virtual nodes a worker's
    share of the ring spreads by about 1/sqrt(v), and where bins are few a worker may own none.
    """
    if not 1 <= virtual_nodes <= _NODES_MAX:
        raise UsageError(f"virtual_nodes must be from 1 to {_NODES_MAX}, not {virtual_nodes}.")
    workers = np.repeat(np.arange(placing.workers, dtype=np.int64), virtual_nodes)
    nodes = np.tile(np.arange(virtual_nodes, dtype=np.int64), placing.workers)
    places = _on_ring(workers * _WORKER + nodes, seed)
    order = np.lexsort((workers, places))
    bins = _on_ring(_BIN + np.arange(placing.bins, dtype=np.int64), seed)
    at = np.searchsorted(places[order], bins) % len(order)
    return workers[order][at].astype(np.int32)


def _on_ring(numbers: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Returns the places of numbers on a seed's ring."""
    salt = hash_int64(np.array([seed], np.int64))
    return hash_int64((hash_int64(numbers) ^ salt).view(np.int64))
