"""Minimal move: as balanced as possible while as few bins as possible change their worker."""

import numpy as np
from numpy.typing import NDArray

from impls.placement import Placing


def place(placing: Placing) -> NDArray[np.int32]:
    """Returns an assignment whose counts differ by at most 1, with the fewest bins moved.

    Workers that own most keep the larger shares; a worker with too many gives its highest bins away.
    """
    current, workers, bins = placing.current, placing.workers, placing.bins
    owned = np.bincount(current[current < workers], minlength=workers)
    share = np.full(workers, bins // workers)
    larger = np.lexsort((np.arange(workers), -owned))[: bins % workers]
    share[larger] += 1
    goal = current.astype(np.int32)
    free = [int(b) for b in np.flatnonzero(current >= workers)]
    for worker in range(workers):
        mine = np.flatnonzero(current == worker)
        free += mine[share[worker] :].tolist()
    room = np.maximum(share - owned, 0)
    goal[sorted(free)] = _round_robin(room)
    return goal


def _round_robin(room: NDArray[np.int64]) -> NDArray[np.int32]:
    """Returns each worker as often as it has room, in turns, so that neighbouring bins spread over workers."""
    turns = np.concatenate([np.arange(n) for n in room]) if len(room) else np.empty(0, np.int64)
    workers = np.repeat(np.arange(len(room)), room)
    return workers[np.lexsort((workers, turns))].astype(np.int32)
